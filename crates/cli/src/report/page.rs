//! The page: its parts from `page/`, the data, and a content security policy that allows these parts and nothing else.
//!
//! Names in the data come from an untrusted file. They are in a block of data, not of code or markup, in which no character
//! is left that ends it; the script writes them as text only; and the policy refuses every script, style, request, frame and
//! form that is not a part of the page, by their digests.

use std::io;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

use super::document::ReportDocument;
use crate::output::json;

const MARKUP: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
/// One script: each part is an expression or a declaration within one function's scope.
const SCRIPTS: &[&str] = &[
    include_str!("page/model.js"),
    include_str!("page/format.js"),
    include_str!("page/dom.js"),
    include_str!("page/colour.js"),
    include_str!("page/overview.js"),
    include_str!("page/treemap.js"),
    include_str!("page/heatmap.js"),
    include_str!("page/curve.js"),
    include_str!("page/table.js"),
    include_str!("page/details.js"),
    include_str!("page/lists.js"),
    include_str!("page/main.js"),
];

/// The page with its data.
pub(super) fn assemble(document: &ReportDocument) -> io::Result<String> {
    // one function around all parts: none of their names is global
    let script = format!("\"use strict\";\n(() => {{\n{}}})();\n", SCRIPTS.concat());
    let mut data = Vec::new();
    json::write_value(document, &mut data)?;
    let data = String::from_utf8(data).expect("JSON is UTF-8");
    let policy = format!(
        // by digests instead of `'unsafe-inline'`: a script that got into the page through a name would not run
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; base-uri 'none'; form-action 'none'",
        digest(&script),
        digest(STYLE)
    );
    let data = escaped(&data);
    // in one pass, so that nothing in the data is taken for a placeholder
    let mut page = String::with_capacity(MARKUP.len() + STYLE.len() + script.len() + data.len());
    for part in MARKUP.split("@@") {
        page.push_str(match part {
            "policy" => &policy,
            "style" => STYLE,
            "data" => &data,
            "script" => &script,
            markup => markup,
        });
    }
    Ok(page)
}

fn digest(text: &str) -> String {
    STANDARD.encode(Sha256::digest(text.as_bytes()))
}

/// JSON that can be in a `script` element: in JSON these characters are in strings only, where an escape is the same. Line
/// separators are escaped with all hidden characters, by [`json::write_value`].
fn escaped(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '<' => out.push_str("\\u003c"),
            '>' => out.push_str("\\u003e"),
            '&' => out.push_str("\\u0026"),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_writes_text_and_never_markup() {
        let script = SCRIPTS.concat();
        for way in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "Function(",
            "setAttribute(\"on",
            "setAttribute(\"style",
            "fetch(",
            "XMLHttpRequest",
            "import(",
            "srcdoc",
            "createContextualFragment",
            "DOMParser",
            "</script",
            "<!--",
        ] {
            assert!(!script.contains(way), "{way}");
        }
        assert!(
            !STYLE.contains("</style") && !STYLE.contains("url(") && !STYLE.contains("@import")
        );
        assert_eq!(MARKUP.split("@@").count(), 9, "four placeholders");
        for script in SCRIPTS {
            assert!(script.lines().count() < 400);
        }
    }

    #[test]
    fn json_has_no_character_that_ends_a_script() {
        let json =
            serde_json::json!({"a": "</script><img src=x onerror=alert(1)> & <!--"}).to_string();
        let escaped = escaped(&json);
        assert!(!escaped.contains(['<', '>', '&']), "{escaped}");
        let read: serde_json::Value = serde_json::from_str(&escaped).unwrap();
        assert_eq!(read["a"], "</script><img src=x onerror=alert(1)> & <!--");
    }
}

//! Generated blocks of a document: from `<!-- KIND: MARKER -->` to `<!-- /KIND -->`.

/// Replaces the content of every block of this kind with what `content` returns for its marker.
pub fn fill(
    text: &str,
    kind: &str,
    content: &mut dyn FnMut(&str) -> String,
) -> Result<String, String> {
    let (begin, end) = (format!("<!-- {kind}: "), format!("<!-- /{kind} -->"));
    let (mut out, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(&begin) {
        let (before, from) = rest.split_at(at);
        let (marker, after) = from.split_once("-->").ok_or("a marker has no `-->`")?;
        let (old, next) = after
            .split_once(&end)
            .ok_or_else(|| format!("{marker}--> has no {end}"))?;
        if old.contains(&begin) {
            return Err(format!("{marker}--> contains another block"));
        }
        out += &format!(
            "{before}{marker}-->\n{}{end}",
            content(marker[begin.len()..].trim())
        );
        rest = next;
    }
    Ok(out + rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_filled_and_nothing_else_is_touched() {
        let text = "a\n<!-- results: load model.pth, cold -->\nold\n<!-- /results -->\nb\n\
                    <!-- results: pool --><!-- /results --><!-- other: x -->y<!-- /other -->";
        let filled_in =
            |text: &str| fill(text, "results", &mut |marker| format!("{marker}|\n")).unwrap();
        let wanted = "a\n<!-- results: load model.pth, cold -->\nload model.pth, cold|\n<!-- /results -->\nb\n\
                      <!-- results: pool -->\npool|\n<!-- /results --><!-- other: x -->y<!-- /other -->";
        assert_eq!(filled_in(text), wanted);
        assert_eq!(filled_in(wanted), wanted);
        assert!(fill("<!-- results: x -->", "results", &mut |_| String::new()).is_err());
    }
}

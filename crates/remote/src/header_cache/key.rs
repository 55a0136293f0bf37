//! The key of a file in the cache: its URL without signatures, which are another one each time.

use url::Url;

/// Parameters of signed URLs that say who may read, and until when.
static SIGNATURES: &[&str] = &[
    "AWSAccessKeyId",
    "GoogleAccessId",
    "Expires",
    "Signature",
    "Key-Pair-Id",
    "Policy",
];

/// Parameters of Azure, which are short enough to be others elsewhere.
static AZURE: &[&str] = &[
    "sv", "ss", "srt", "sr", "sp", "st", "se", "spr", "sip", "si", "sdd", "sig", "skoid", "sktid",
    "skt", "ske", "sks", "skv",
];

/// The key of a URL. All of a query stays that is not known to be a signature, as it may choose the file: the key of a URL with a
/// token of its own has the token, so that no key is written anywhere.
pub(crate) fn key_of(mut url: Url) -> String {
    url.set_fragment(None);
    // credentials of `HF_ENDPOINT` and the like; a URL without a host has none
    let _ = url.set_username("");
    let _ = url.set_password(None);
    let Some(query) = url.query().map(str::to_owned) else {
        return url.into();
    };
    let is_azure = query.split('&').any(|pair| name(pair) == "sig");
    let chosen = query.split('&').filter(|pair| {
        let name = name(pair);
        let is_known = |known: &&str| known.eq_ignore_ascii_case(name);
        let lower = name.to_ascii_lowercase();
        !(lower.starts_with("x-amz-")
            || lower.starts_with("x-goog-")
            || SIGNATURES.iter().any(is_known)
            || is_azure && AZURE.contains(&name))
    });
    let chosen: Vec<&str> = chosen.collect();
    url.set_query((!chosen.is_empty()).then(|| chosen.join("&")).as_deref());
    url.into()
}

/// The name of a parameter.
fn name(pair: &str) -> &str {
    pair.split('=').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_are_left_out_and_what_chooses_the_file_is_not() {
        let key = |url: &str| key_of(Url::parse(url).unwrap());
        for (url, expected) in [
            (
                "https://h/a?X-Amz-Signature=1&X-Amz-Date=2#part",
                "https://h/a",
            ),
            (
                "https://h/a?x-goog-signature=1&generation=3",
                "https://h/a?generation=3",
            ),
            (
                "https://h/a?Expires=1&Signature=2&Key-Pair-Id=3",
                "https://h/a",
            ),
            (
                "https://h/a?versionId=1&AWSAccessKeyId=2&Signature=3",
                "https://h/a?versionId=1",
            ),
            (
                "https://h/a?sv=1&sp=r&sig=2&snapshot=3",
                "https://h/a?snapshot=3",
            ),
            ("https://h/a?sp=1&b=2", "https://h/a?sp=1&b=2"),
            (
                "https://name:word@h/a?file=b&token=c",
                "https://h/a?file=b&token=c",
            ),
            ("https://h/a?", "https://h/a?"),
        ] {
            assert_eq!(key(url), expected);
        }
    }
}

//! What a browser may do with the page: nothing but apply its one style sheet and run its one script, known by their
//! hashes. Should a text from the data ever come through unescaped, it would still not run.

use sha2::{Digest, Sha256};

/// The policy of a page with this style sheet and script.
pub(super) fn policy(style: &str, script: &str) -> String {
    let [style, script] = [style, script].map(source);
    format!(
        "default-src 'none'; style-src {style}; script-src {script}; img-src data:; base-uri 'none'; \
         form-action 'none'"
    )
}

/// A source's hash as policies have it.
pub(super) fn source(text: &str) -> String {
    format!("'sha256-{}'", base64(&Sha256::digest(text.as_bytes())))
}

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn base64(bytes: &[u8]) -> String {
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let byte = |index: usize| u32::from(three.get(index).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            let known = digit <= three.len();
            let value = (bits >> (18 - 6 * digit)) as usize & 63;
            text.push(if known { char::from(DIGITS[value]) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_the_standard() {
        // The test vectors of RFC 4648.
        let texts =
            ["", "f", "fo", "foo", "foob", "fooba", "foobar"].map(|text| base64(text.as_bytes()));
        assert_eq!(texts, ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"]);
    }

    #[test]
    fn hashes_are_those_of_the_specification() {
        // An example of Content Security Policy Level 3.
        let known = "'sha256-qznLcsROx4GACP2dm0UCKCzCG+HiZ1guq6ZZDob/Tng='";
        assert_eq!(source("alert('Hello, world.');"), known);
    }
}

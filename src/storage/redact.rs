//! Credentials out of texts that are shown, logged or kept.

/// Environment variables whose values are never shown, by the ends of their names.
const SECRET_NAMES: [&str; 8] = [
    "_KEY",
    "_KEY_ID",
    "_SECRET",
    "_TOKEN",
    "_PASSWORD",
    "_SAS",
    "_CONNECTION_STRING",
    "_CREDENTIAL",
];

/// Prefixes of the variables that stores read.
const PREFIXES: [&str; 4] = ["AWS_", "AZURE_", "GOOGLE_", "ICEBERG_"];

/// What follows these, up to the next mark, is a secret.
const MARKS: [&str; 9] = [
    "sig=",
    "X-Amz-Signature=",
    "X-Amz-Credential=",
    "X-Amz-Security-Token=",
    "X-Goog-Signature=",
    "X-Goog-Credential=",
    "Signature=",
    "AccessKey=",
    "AccountKey=",
];

/// Values shorter than this are words rather than secrets.
const SHORTEST: usize = 6;

/// What stands in the place of a secret.
const HIDDEN: &str = "[redacted]";

/// A text without credentials: those of the environment, those in URLs, and signatures.
pub fn redact(text: &str) -> String {
    let secrets = std::env::vars_os().filter_map(|(name, value)| {
        let name = name.into_string().ok()?;
        let secret = PREFIXES.iter().any(|prefix| name.starts_with(prefix))
            && SECRET_NAMES.iter().any(|end| name.ends_with(end));
        value.into_string().ok().filter(|value| secret && value.len() >= SHORTEST)
    });
    let mut shown = text.to_string();
    for secret in secrets {
        shown = shown.replace(&secret, HIDDEN);
    }
    MARKS.iter().fold(without_users(&shown), |text, mark| after(&text, mark))
}

/// Hides what follows a mark.
fn after(text: &str, mark: &str) -> String {
    let mut parts = text.split(mark);
    let mut shown = parts.next().unwrap_or_default().to_string();
    for part in parts {
        let ends =
            |c: char| c.is_whitespace() || matches!(c, '&' | '"' | '\'' | '<' | ')' | ';' | ',');
        let end = part.find(ends).unwrap_or(part.len());
        shown.push_str(mark);
        shown.push_str(HIDDEN);
        shown.push_str(&part[end..]);
    }
    shown
}

/// Hides `user:password` in URLs.
fn without_users(text: &str) -> String {
    let mut parts = text.split("://");
    let mut shown = parts.next().unwrap_or_default().to_string();
    for part in parts {
        let end = part.find(|c: char| c.is_whitespace() || c == '/').unwrap_or(part.len());
        let (authority, rest) = part.split_at(end);
        shown.push_str("://");
        match authority.rsplit_once('@') {
            Some((user, host)) if user.contains(':') => {
                shown.push_str(HIDDEN);
                shown.push('@');
                shown.push_str(host);
            }
            _ => shown.push_str(authority),
        }
        shown.push_str(rest);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_in_urls_and_signatures_are_hidden() {
        for (text, expected) in [
            ("GET http://u:p@host/x failed", "GET http://[redacted]@host/x failed"),
            ("https://a/b?sv=1&sig=aB%2F&x=1", "https://a/b?sv=1&sig=[redacted]&x=1"),
            ("X-Amz-Signature=00ff)", "X-Amz-Signature=[redacted])"),
            ("abfss://raw@account/x", "abfss://raw@account/x"),
            ("plain", "plain"),
        ] {
            assert_eq!(redact(text), expected);
        }
    }
}

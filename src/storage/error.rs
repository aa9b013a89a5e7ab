//! What a store's errors say, in plain words: who must act, and what helps.

use object_store::Error as StoreError;

use super::location::{ObjectUrl, Scheme};
use super::redact::redact;
use crate::error::{Error, Kind};

/// Characters of a store's own words that are kept as the cause.
const MOST_WORDS: usize = 600;

/// What the store means: codes and words that its answers hold, the problem, and what helps.
struct Meaning {
    marks: &'static [&'static str],
    problem: &'static str,
    hint: &'static str,
}

/// In the order in which they are looked for: the first that fits counts.
const MEANINGS: [Meaning; 13] = [
    Meaning {
        marks: &["precondition failure", "At least one of the pre-conditions"],
        problem: "was changed while the run was using it",
        hint: "run again, without `--resume`, when nobody writes to it",
    },
    Meaning {
        marks: &["ExpiredToken", "TokenRefreshRequired", "token has expired", "token is expired"],
        problem: "the session token has expired",
        hint: "get new credentials, then run again with `--resume`",
    },
    Meaning {
        marks: &["RequestTimeTooSkewed", "clock skew", "RequestExpired"],
        problem: "this machine's clock differs from the store's by too much",
        hint: "set the clock (`timedatectl`, or the host's clock for a container), then run again",
    },
    Meaning {
        marks: &[
            "PermanentRedirect",
            "AuthorizationHeaderMalformed",
            "IllegalLocationConstraint",
            "redirect without LOCATION",
            "incorrectly configured region",
        ],
        problem: "the bucket lies in another region than the one that was asked",
        hint: "set `AWS_REGION`, or `region` in `[storage.\"s3://bucket\"]`",
    },
    Meaning {
        marks: &[
            "InvalidAccessKeyId",
            "SignatureDoesNotMatch",
            "AuthenticationFailed",
            "InvalidAuthenticationInfo",
            "InvalidToken",
            "invalid_grant",
            "UnrecognizedClientException",
        ],
        problem: "the store does not accept the credentials",
        hint: "check the credentials in the environment (SECURITY.md lists the variables)",
    },
    Meaning {
        marks: &["NoSuchBucket", "ContainerNotFound", "The specified bucket does not exist"],
        problem: "the bucket does not exist",
        hint: "check the name in the URL, and `endpoint` and `region` of the store",
    },
    Meaning {
        marks: &[
            "169.254.169.254",
            "metadata.google.internal",
            "MissingAccessKeyId",
            "metadata endpoint",
        ],
        problem: "no credentials were found",
        hint: "set them in the environment, such as `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`, or run \
               where the machine has a role",
    },
    Meaning {
        marks: &[
            "AccessDenied",
            "AuthorizationPermissionMismatch",
            "AuthorizationFailure",
            "403 Forbidden",
        ],
        problem: "access is denied",
        hint: "reading needs the rights to get and list, writing those to put, copy and delete as well; a key \
               that is wrong may be answered so, too",
    },
    Meaning {
        marks: &["401 Unauthorized"],
        problem: "the store asks for credentials, or does not accept those it got",
        hint: "check the credentials in the environment (SECURITY.md lists the variables)",
    },
    Meaning {
        marks: &["scheme is not allowed", "URL scheme is not allowed"],
        problem: "the endpoint is plain http, which is not used unless it is allowed",
        hint: "use https, or set `allow_http = \"true\"` in the `[storage]` section, or `AWS_ALLOW_HTTP=true`",
    },
    Meaning {
        marks: &["SlowDown", "503 Service", "500 Internal", "502 Bad", "504 Gateway", "429 Too"],
        problem: "the store kept answering with errors, through all retries",
        hint: "run again with `--resume` when it is well",
    },
    Meaning {
        marks: &["operation timed out", "deadline has elapsed", "TimedOut", "Timeout"],
        problem: "the store did not answer in time, through all retries",
        hint: "check the network, then run again with `--resume`; `timeout` in `[storage]` sets the limit",
    },
    Meaning {
        marks: &["error sending request", "connection", "dns error", "Interrupted"],
        problem: "the store cannot be reached",
        hint: "check the network, `endpoint` and the proxy, then run again with `--resume`",
    },
];

/// An error of a store as one of ours. `kind` says who delivers what is read or written there.
pub fn translate(kind: Kind, url: &ObjectUrl, error: &StoreError) -> Error {
    let words = chain(error);
    let (problem, hint) = meaning(url, error, &words);
    let found = Error::new(kind, url.to_string(), problem);
    let found = if hint.is_empty() { found } else { found.hint(hint) };
    found.source(without_secrets(&words))
}

/// The same for an error that came through another library, of which only the words are left.
pub fn refused(kind: Kind, shown: &str, words: &str) -> Option<Error> {
    let found =
        MEANINGS.iter().find(|meaning| meaning.marks.iter().any(|mark| words.contains(mark)))?;
    let error = Error::new(kind, shown, found.problem).hint(found.hint);
    Some(error.source(without_secrets(words)))
}

fn meaning(url: &ObjectUrl, error: &StoreError, words: &str) -> (String, String) {
    let found = |meaning: &&Meaning| meaning.marks.iter().any(|mark| words.contains(mark));
    match error {
        StoreError::NotImplemented { .. } | StoreError::NotSupported { .. } => (
            format!("the store cannot do what is needed: {}", without_secrets(words)),
            "results need writes on condition: leave `conditional_put` at its default".to_string(),
        ),
        _ => match MEANINGS.iter().find(found) {
            Some(meaning) => (with_region(meaning.problem, words), of_scheme(meaning.hint, url)),
            None if matches!(error, StoreError::NotFound { .. }) => (
                "does not exist".to_string(),
                "check the URL; names of objects are case-sensitive".to_string(),
            ),
            None => (format!("the store answered: {}", without_secrets(words)), String::new()),
        },
    }
}

/// S3 says which region it expects.
fn with_region(problem: &str, words: &str) -> String {
    let expected = words.split_once("expecting '").and_then(|(_, rest)| rest.split_once('\''));
    let expected = expected.or_else(|| words.split_once("<Region>")?.1.split_once("</Region>"));
    match expected {
        Some((region, _)) => format!("{problem}: it is `{region}`"),
        None => problem.to_string(),
    }
}

/// The names of variables are those of the store.
fn of_scheme(hint: &str, url: &ObjectUrl) -> String {
    match url.scheme() {
        Scheme::S3 => hint.to_string(),
        Scheme::Google => hint
            .replace("`AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`", "`GOOGLE_SERVICE_ACCOUNT`")
            .replace("AWS_ALLOW_HTTP", "GOOGLE_ALLOW_HTTP"),
        Scheme::Azure => hint
            .replace(
                "`AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`",
                "`AZURE_STORAGE_ACCOUNT_NAME` and `AZURE_STORAGE_ACCOUNT_KEY`",
            )
            .replace("AWS_ALLOW_HTTP", "AZURE_ALLOW_HTTP"),
    }
}

/// The words of an error and of all its causes.
fn chain(error: &StoreError) -> String {
    let mut words = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        let more = error.to_string();
        if !words.contains(&more) {
            words = format!("{words}: {more}");
        }
        cause = error.source();
    }
    words
}

/// What is shown of a store's words: no secrets, and no more than helps. An XML answer is its code and message.
fn without_secrets(words: &str) -> String {
    let tag = |name: &str| {
        let (_, rest) = words.split_once(&format!("<{name}>"))?;
        rest.split_once('<').map(|(text, _)| text.trim().to_string())
    };
    let short = match (tag("Code"), tag("Message")) {
        (Some(code), Some(message)) => format!("{code}: {message}"),
        _ => words.split_whitespace().collect::<Vec<_>>().join(" "),
    };
    redact(&short.chars().take(MOST_WORDS).collect::<String>())
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn of(url: &str, words: &str, expected: Expect) {
        let error = StoreError::Generic { store: "S3", source: words.into() };
        let url = ObjectUrl::parse(url).expect("a URL");
        expected.assert_eq(&translate(Kind::Input, &url, &error).to_string());
    }

    #[test]
    fn what_usually_goes_wrong_is_said_in_words() {
        of(
            "s3://lake/x",
            "status code: 403 Forbidden: <Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>",
            expect![[r#"
            s3://lake/x: the session token has expired
              hint: get new credentials, then run again with `--resume`"#]],
        );
        of(
            "s3://lake/x",
            "status code: 403 Forbidden: <Code>RequestTimeTooSkewed</Code>",
            expect![[r#"
            s3://lake/x: this machine's clock differs from the store's by too much
              hint: set the clock (`timedatectl`, or the host's clock for a container), then run again"#]],
        );
        of(
            "s3://lake/x",
            "400: <Code>AuthorizationHeaderMalformed</Code><Message>the region 'us-east-1' is wrong; expecting 'eu-west-1'</Message>",
            expect![[r#"
            s3://lake/x: the bucket lies in another region than the one that was asked: it is `eu-west-1`
              hint: set `AWS_REGION`, or `region` in `[storage."s3://bucket"]`"#]],
        );
        of(
            "s3://lake/x",
            "403 Forbidden: <Code>InvalidAccessKeyId</Code>",
            expect![[r#"
            s3://lake/x: the store does not accept the credentials
              hint: check the credentials in the environment (SECURITY.md lists the variables)"#]],
        );
        of(
            "az://raw/x",
            "error sending request for url (http://169.254.169.254/latest)",
            expect![[r#"
            az://raw/x: no credentials were found
              hint: set them in the environment, such as `AZURE_STORAGE_ACCOUNT_NAME` and `AZURE_STORAGE_ACCOUNT_KEY`, or run where the machine has a role"#]],
        );
        of(
            "s3://lake/x",
            "Received 403 Forbidden: No Body",
            expect![[r#"
            s3://lake/x: access is denied
              hint: reading needs the rights to get and list, writing those to put, copy and delete as well; a key that is wrong may be answered so, too"#]],
        );
        of(
            "s3://lake/x",
            "something new http://u:p@host/",
            expect![[r#"
            s3://lake/x: the store answered: Generic S3 error: something new http://[redacted]@host/"#]],
        );
    }
}

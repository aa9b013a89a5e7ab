//! Where something is: a path of this machine, or an object of a store.

use std::fmt;
use std::path::{Path, PathBuf};

use object_store::path::Path as Key;

/// Between a URL's scheme and the rest.
const SEPARATOR: &str = "://";

/// Parameters of a URL that grant access to whoever has them.
const SIGNATURES: [&str; 4] = ["sig=", "x-amz-signature=", "x-goog-signature=", "signature="];

/// Which kind of store a URL is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scheme {
    /// Amazon S3, and what speaks its protocol.
    S3,
    /// Google Cloud Storage.
    Google,
    /// Azure Blob Storage and Data Lake Storage.
    Azure,
}

impl Scheme {
    fn parse(text: &str) -> Option<Scheme> {
        match text {
            "s3" | "s3a" => Some(Scheme::S3),
            "gs" => Some(Scheme::Google),
            "az" | "abfs" | "abfss" => Some(Scheme::Azure),
            _ => None,
        }
    }
}

/// An object, or a prefix of objects, of a store.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectUrl {
    scheme: Scheme,
    /// Scheme and bucket, such as `s3://lake`: what options and an open store belong to.
    bucket: String,
    /// The object's name, without a slash at either end.
    key: String,
}

/// A path of a job: local, or in a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// A file or folder of this machine.
    Local(PathBuf),
    /// An object or a prefix.
    Object(ObjectUrl),
}

/// Whether a text is meant as a URL.
pub fn is_url(text: &str) -> bool {
    let scheme = text.split_once(SEPARATOR).map_or("", |(scheme, _)| scheme);
    !scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

impl Location {
    /// What a text names.
    ///
    /// # Errors
    /// What is wrong with a URL, to be put after "is `…`, ".
    pub fn parse(text: &str) -> Result<Location, String> {
        let Some(path) = text.strip_prefix("file://") else {
            return Ok(match is_url(text) {
                true => Location::Object(ObjectUrl::parse(text)?),
                false => Location::Local(PathBuf::from(text)),
            });
        };
        if path.starts_with('/') {
            return Ok(Location::Local(PathBuf::from(path)));
        }
        Err("which names a host, expected `file:///` and an absolute path".to_string())
    }

    /// The path, if it is one of this machine.
    pub fn local(&self) -> Option<&Path> {
        match self {
            Location::Local(path) => Some(path),
            Location::Object(_) => None,
        }
    }

    /// What a name means that is relative to this.
    #[must_use]
    pub fn join(&self, name: &str) -> Location {
        match self {
            Location::Local(path) => Location::Local(path.join(name)),
            Location::Object(url) => Location::Object(url.join(name)),
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Location::Local(path) => path.display().fmt(f),
            Location::Object(url) => url.fmt(f),
        }
    }
}

impl ObjectUrl {
    /// Reads a URL. Its path is the object's name as it stands: nothing in it is percent-encoded.
    ///
    /// # Errors
    /// What is wrong with it, to be put after "is `…`, ".
    pub fn parse(text: &str) -> Result<ObjectUrl, String> {
        let (name, rest) = text.split_once(SEPARATOR).unwrap_or(("", text));
        let scheme = Scheme::parse(name).ok_or_else(|| {
            format!("which has the scheme `{name}`, expected `s3`, `gs`, `az`, `abfss` or `file`")
        })?;
        let (authority, key) = rest.split_once('/').unwrap_or((rest, ""));
        let lower = rest.to_ascii_lowercase();
        if SIGNATURES.iter().any(|part| lower.contains(part)) {
            return Err("which holds a signature, expected credentials in the environment".into());
        }
        let user = authority.rsplit_once('@').map(|(user, _)| user);
        let allowed = scheme == Scheme::Azure && !user.is_some_and(|user| user.contains(':'));
        if user.is_some() && !allowed {
            return Err("which holds credentials, expected them in the environment".to_string());
        }
        if authority.is_empty() || authority.contains([':', '?', '#', ' ']) {
            return Err(format!("which names no bucket, expected `{name}://bucket/path`"));
        }
        let key = key.trim_end_matches('/');
        if key.starts_with('/') {
            return Err("which is no name of an object: it begins with a slash".to_string());
        }
        if let Err(error) = Key::parse(key) {
            return Err(format!("which is no name of an object: {error}"));
        }
        let name = if scheme == Scheme::S3 { "s3" } else { name };
        Ok(ObjectUrl {
            scheme,
            bucket: format!("{name}{SEPARATOR}{authority}"),
            key: key.to_string(),
        })
    }

    /// Which kind of store it is in.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// Scheme and bucket.
    pub fn bucket(&self) -> &str {
        &self.bucket
    }

    /// What follows the scheme, up to the first slash.
    pub(super) fn authority(&self) -> &str {
        self.bucket.split_once(SEPARATOR).map_or("", |(_, authority)| authority)
    }

    /// The object's name.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The last part of the name.
    pub fn name(&self) -> &str {
        self.key.rsplit('/').next().unwrap_or_default()
    }

    /// Another object of the same bucket.
    #[must_use]
    pub fn with_key(&self, key: &str) -> ObjectUrl {
        ObjectUrl { key: key.trim_matches('/').to_string(), ..self.clone() }
    }

    /// The object of this name below this prefix.
    #[must_use]
    pub fn join(&self, name: &str) -> ObjectUrl {
        self.with_key(&format!("{}/{name}", self.key))
    }

    /// Whether it is this prefix, or below it.
    pub fn is_below(&self, prefix: &ObjectUrl) -> bool {
        let rest = self.key.strip_prefix(&prefix.key);
        let below = |rest: &str| rest.is_empty() || prefix.key.is_empty() || rest.starts_with('/');
        self.bucket == prefix.bucket && rest.is_some_and(below)
    }
}

impl fmt::Display for ObjectUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.key.as_str() {
            "" => f.write_str(&self.bucket),
            key => write!(f, "{}/{key}", self.bucket),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn url(text: &str) -> ObjectUrl {
        ObjectUrl::parse(text).unwrap_or_else(|problem| panic!("{text}: {problem}"))
    }

    #[test]
    fn paths_and_urls_are_told_apart() {
        for path in ["a.parquet", "/data/x", "C:/x", "a://", "./s3://b/x", "a b://c"] {
            let local = Location::parse(path).is_ok_and(|found| found.local().is_some());
            assert_eq!(local, !is_url(path), "{path}");
        }
        let file = Location::parse("file:///data/x").expect("a path");
        assert_eq!(file.local(), Some(Path::new("/data/x")));
        assert!(Location::parse("file://host/x").is_err());
        assert_eq!(url("s3a://lake/a/b/").to_string(), "s3://lake/a/b");
        assert_eq!(url("s3://lake").join("a b/c=1").to_string(), "s3://lake/a b/c=1");
        let azure = url("abfss://raw@account.dfs.core.windows.net/a/b");
        assert_eq!((azure.scheme(), azure.key(), azure.name()), (Scheme::Azure, "a/b", "b"));
    }

    #[test]
    fn urls_that_hold_secrets_or_name_nothing_are_refused() {
        for (text, problem) in [
            ("s3://key:secret@lake/x", "holds credentials"),
            ("s3://key@lake/x", "holds credentials"),
            ("abfss://raw:secret@account.dfs.core.windows.net/x", "holds credentials"),
            ("az://raw/x?sv=1&sig=abc", "holds a signature"),
            ("s3://lake/x?X-Amz-Signature=abc", "holds a signature"),
            ("s3:///x", "names no bucket"),
            ("s3://lake//x", "no name of an object"),
            ("s3://lake/../x", "no name of an object"),
            ("ftp://lake/x", "the scheme `ftp`"),
            ("https://lake/x", "the scheme `https`"),
        ] {
            let found = ObjectUrl::parse(text).expect_err(text);
            assert!(found.contains(problem) && !found.contains("secret"), "{text}: {found}");
        }
    }

    #[test]
    fn what_lies_below_a_prefix() {
        let below = |inner: &str, outer: &str| url(inner).is_below(&url(outer));
        assert!(below("s3://a/b/c", "s3://a/b") && below("s3://a/b", "s3://a/b"));
        assert!(below("s3a://a/b", "s3://a"));
        assert!(!below("s3://a/bc", "s3://a/b") && !below("s3://c/b", "s3://a/b"));
    }

    proptest! {
        #[test]
        fn a_url_reads_as_it_is_shown(bucket in "[a-z][a-z0-9.-]{0,8}", key in "([a-z=. ]{1,4}x/){0,3}[a-zé%?*]{1,5}") {
            let text = format!("s3://{bucket}/{key}");
            let parsed = ObjectUrl::parse(&text).expect("a URL");
            prop_assert_eq!(&parsed.to_string(), &text);
            prop_assert_eq!(ObjectUrl::parse(&parsed.to_string()), Ok(parsed));
        }
    }
}

//! Paths of a job: relative ones start from its file's folder, URLs stay as they are.

use std::path::{Path, PathBuf};

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::resolve::JobResolver;
use crate::document::odd_kind;
use crate::error::Result;
use crate::storage::{Location, ObjectUrl, cache_folder, is_url};

/// Digits of a name that is made of a URL.
const DIGITS: usize = 16;

impl JobResolver<'_> {
    /// What a path names; none where it is a URL that cannot be used, which is a fault.
    fn location(&mut self, path: &Path, key: &str) -> Option<Location> {
        let text = path.to_string_lossy();
        if !is_url(&text) {
            return Some(Location::Local(self.path(path)));
        }
        let shown = crate::storage::redact(&text);
        let parsed = Location::parse(&text);
        let problem = parsed.as_ref().err().map(|problem| format!("is `{shown}`, {problem}"));
        self.require(problem.is_none(), key, problem.as_deref().unwrap_or_default());
        parsed.ok()
    }

    pub(super) fn tables(&mut self, paths: Vec<String>, key: &str) -> Vec<String> {
        self.require(!paths.is_empty(), key, "is empty, expected at least one path");
        let named = |path: &String| self.location(Path::new(path), key).map(|at| at.to_string());
        let found: Vec<String> = paths.iter().filter_map(named).collect();
        let bucket =
            |path: &String| ObjectUrl::parse(path).ok().map(|url| url.bucket().to_string());
        let mut buckets: Vec<Option<String>> = found.iter().map(bucket).collect();
        buckets.dedup();
        let problem =
            "names paths of several places, expected paths of this machine or URLs of one bucket";
        self.require(buckets.len() <= 1, key, problem);
        found
    }

    pub(super) fn path(&self, path: &Path) -> PathBuf {
        self.folder.join(path)
    }

    /// A path of this machine.
    pub(super) fn local(&mut self, path: &Path, key: &str) -> PathBuf {
        let location = self.location(path, key);
        let local = location.as_ref().and_then(Location::local).map(Path::to_path_buf);
        let problem = format!("is `{}`, expected a path of this machine", path.display());
        self.require(local.is_some() || location.is_none(), key, &problem);
        local.unwrap_or_default()
    }

    /// A path of this machine, or a URL as it stands.
    pub(super) fn local_or_url(&mut self, path: &Path, key: &str) -> PathBuf {
        match self.location(path, key) {
            Some(Location::Local(path)) => path,
            Some(Location::Object(url)) => PathBuf::from(url.to_string()),
            None => PathBuf::new(),
        }
    }

    /// A path that must be there. Whether an object is, is found when it is fetched.
    pub(super) fn existing(&mut self, path: &Path, key: &str) -> PathBuf {
        let Some(location) = self.location(path, key) else { return PathBuf::new() };
        let Location::Local(path) = location else { return PathBuf::from(location.to_string()) };
        let problem = format!("is `{}`, which does not exist", path.display());
        self.require(path.exists(), key, &problem);
        path
    }

    /// A path that must be a file: a pipe would be waited for without end.
    pub(super) fn existing_file(&mut self, path: &Path, key: &str) -> PathBuf {
        let path = self.existing(path, key);
        let kind = std::fs::metadata(&path).ok().and_then(|metadata| odd_kind(&metadata));
        if let Some(kind) = kind {
            let problem = format!("is `{}`, which is {kind}, expected a file", path.display());
            self.require(false, key, &problem);
        }
        path
    }

    /// Where results are put together, and the URL where they are to appear, if it is one.
    pub(super) fn output_dir(&mut self, path: &Path) -> (PathBuf, Option<ObjectUrl>) {
        const KEY: &str = "output.dir";
        match self.location(path, KEY) {
            None => (PathBuf::new(), None),
            Some(Location::Local(path)) => (path, None),
            Some(Location::Object(url)) => {
                let problem = format!("is `{url}`, expected a path in the bucket");
                self.require(!url.key().is_empty(), KEY, &problem);
                let scratch = scratch_of(&url);
                let problem = "is a URL, but there is no folder to put results together in: set `XDG_CACHE_HOME`";
                self.require(scratch.is_ok(), KEY, problem);
                (scratch.unwrap_or_default(), Some(url))
            }
        }
    }
}

/// Where results are put together that are to appear in a store.
///
/// # Errors
/// When there is no place for it.
pub fn scratch_of(url: &ObjectUrl) -> Result<PathBuf> {
    let digits = Sha256::digest(url.to_string());
    let digits: String = digits.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(cache_folder()?.join("runs").join(&digits[..DIGITS]).join(url.name()))
}

/// Names URLs in the place of their copies.
pub(super) fn name_urls(json: &mut Value, copies: &[(PathBuf, String)]) {
    match json {
        Value::String(text) => {
            let url = copies.iter().find(|(copy, _)| copy.as_os_str() == text.as_str());
            if let Some((_, url)) = url {
                text.clone_from(url);
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| name_urls(value, copies)),
        Value::Object(fields) => fields.values_mut().for_each(|value| name_urls(value, copies)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn copies_are_named_by_their_urls() {
        let copies = vec![(PathBuf::from("/cache/m.onnx"), "s3://lake/m.onnx".to_string())];
        let mut job = json!({ "a": ["/cache/m.onnx", 1], "b": { "c": "/cache/m.onnx.data" } });
        name_urls(&mut job, &copies);
        assert_eq!(
            job,
            json!({ "a": ["s3://lake/m.onnx", 1], "b": { "c": "/cache/m.onnx.data" } })
        );
    }
}

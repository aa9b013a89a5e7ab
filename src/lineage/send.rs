//! How events leave: appended to a file, or posted to a server. Neither may keep a run waiting for long.

use std::fmt;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use url::Url;

use crate::job::LineageJob;
use crate::runtime::block_on_wire;

/// The server, which comes before the job's.
const URL: &str = "OPENLINEAGE_URL";
/// The path of the server that takes events.
const ENDPOINT: &str = "OPENLINEAGE_ENDPOINT";
/// The key to the server. It is in no job file, event or message.
const API_KEY: &str = "OPENLINEAGE_API_KEY";

/// How long a server may take, more often than twice a run.
const PATIENCE: Duration = Duration::from_secs(5);
/// The same after a signal, when the program is about to be ended.
const LAST_PATIENCE: Duration = Duration::from_millis(700);

/// One way out.
#[derive(Debug)]
pub(super) enum Transport {
    File(PathBuf),
    Http { url: String, key: Option<String> },
}

impl fmt::Display for Transport {
    /// Without user names, passwords and keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Transport::File(path) => write!(f, "{}", path.display()),
            Transport::Http { url, .. } => write!(f, "{}", redacted(url)),
        }
    }
}

impl Transport {
    /// All that the job and the environment name.
    pub(super) fn all(job: &LineageJob) -> Vec<Transport> {
        let variable = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
        let url = variable(URL).or_else(|| job.url.clone());
        let endpoint = variable(ENDPOINT).unwrap_or_else(|| "api/v1/lineage".to_string());
        let http = url.map(|url| Transport::Http {
            url: format!("{}/{}", url.trim_end_matches('/'), endpoint.trim_start_matches('/')),
            key: variable(API_KEY),
        });
        job.file.clone().map(Transport::File).into_iter().chain(http).collect()
    }

    /// Delivers an event, or says why not.
    pub(super) fn send(&self, event: &str) -> Result<(), String> {
        match self {
            Transport::File(path) => {
                let file = OpenOptions::new().create(true).append(true).open(path);
                // One write, so that lines of several runs do not mix.
                let written =
                    file.and_then(|mut file| file.write_all(format!("{event}\n").as_bytes()));
                written.map_err(|error| error.to_string())
            }
            Transport::Http { url, key } => {
                let stopping = crate::stop::requested().is_some();
                let patience = if stopping { LAST_PATIENCE } else { PATIENCE };
                block_on_wire(post(url.clone(), key.clone(), event.to_string()), patience)
                    .unwrap_or_else(|| Err(format!("no answer within {patience:?}")))
            }
        }
    }
}

async fn post(url: String, key: Option<String>, event: String) -> Result<(), String> {
    // Where an event is sent on to, nobody has said that it may go.
    let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none());
    let described = |error: reqwest::Error| {
        let source = std::error::Error::source(&error).map(ToString::to_string);
        source.unwrap_or_else(|| error.without_url().to_string())
    };
    let mut request = client
        .build()
        .map_err(described)?
        .post(url)
        .header("content-type", "application/json")
        .body(event);
    if let Some(key) = key {
        request = request.bearer_auth(key);
    }
    let response = request.send().await.map_err(described)?;
    let status = response.status();
    if status.is_success() { Ok(()) } else { Err(format!("the server answers {status}")) }
}

/// An address without what identifies its user.
fn redacted(url: &str) -> String {
    let Ok(mut url) = Url::parse(url) else { return "the server".to_string() };
    // Neither can fail for an address that has a host.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_query(None);
    url.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_no_secrets() {
        let url = "https://user:secret@host/api/v1/lineage?token=secret";
        assert_eq!(redacted(url), "https://host/api/v1/lineage");
    }
}

//! The catalogue, which knows where a table's metadata are and lets one commit at a time through: the REST protocol,
//! plain HTTP and JSON.

use std::time::Duration;

use reqwest::{Client, Method, StatusCode, redirect::Policy};
use serde_json::{Value, json};
use url::{Host, Url};

use super::metadata::Metadata;
use crate::error::{Error, Kind, Result};
use crate::job::IcebergTable;
use crate::storage::redact;

/// A key to the catalogue. It is in no job file, log or message.
const TOKEN: &str = "ICEBERG_CATALOG_TOKEN";
/// `client:secret`, for which the catalogue gives a key.
const CREDENTIAL: &str = "ICEBERG_CATALOG_CREDENTIAL";
/// Where it is asked for the key, if not below the catalogue itself.
const TOKEN_SERVER: &str = "ICEBERG_CATALOG_OAUTH2_SERVER_URI";

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// Times that a question is asked while the catalogue does not answer it.
const TRIES: u32 = 5;
/// The first wait between two; each is twice as long.
const FIRST_WAIT: Duration = Duration::from_millis(200);
/// Characters of the catalogue's own words that are shown.
const MOST_WORDS: usize = 300;

/// A table of a catalogue.
#[derive(Debug)]
pub struct Catalog {
    /// The catalogue with its version and prefix.
    base: String,
    table: IcebergTable,
    client: Client,
    token: Option<String>,
    kind: Kind,
}

/// What became of a commit.
#[derive(Debug)]
pub enum Committed {
    /// It was made.
    Done,
    /// Another was faster, or what was required does not hold.
    Refused(String),
    /// Nobody can say: the answer was lost, or the catalogue is not well.
    Unknown(String),
}

/// An answer: its status, and what it says.
struct Answer {
    status: StatusCode,
    body: Value,
}

impl Catalog {
    /// Asks the catalogue how it is to be asked.
    ///
    /// # Errors
    /// When it cannot be reached, or does not let us in.
    pub async fn open(table: &IcebergTable, kind: Kind) -> Result<Catalog> {
        let address = table.catalog.as_deref().unwrap_or_default().trim_end_matches('/');
        let address = address.trim_end_matches("/v1").to_string();
        // Where a request is sent on to, nobody has said that its key may go.
        let client = Client::builder().redirect(Policy::none()).timeout(PATIENCE).build();
        let client = client.map_err(|error| Error::new(kind, &address, told(error)))?;
        let base = format!("{address}/v1");
        let mut catalog = Catalog { base, table: table.clone(), client, token: None, kind };
        catalog.token = catalog.key(&address).await?;
        let warehouse = table.warehouse.as_deref().map(|name| {
            let name =
                percent_encoding::utf8_percent_encode(name, percent_encoding::NON_ALPHANUMERIC);
            format!("?warehouse={name}")
        });
        let config = format!("{}/config{}", catalog.base, warehouse.unwrap_or_default());
        let answer = catalog.ask(Method::GET, &config, None).await?;
        let config = catalog.accepted(answer)?;
        let prefix =
            ["overrides", "defaults"].iter().find_map(|part| config[part]["prefix"].as_str());
        if let Some(prefix) = prefix.filter(|prefix| !prefix.is_empty()) {
            catalog.base = format!("{}/{prefix}", catalog.base);
        }
        Ok(catalog)
    }

    /// How the table is called in messages.
    fn shown(&self) -> String {
        self.table.shown()
    }

    /// The key that requests carry, if the environment has one or what gives one.
    async fn key(&self, address: &str) -> Result<Option<String>> {
        let variable = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
        let (token, credential) = (variable(TOKEN), variable(CREDENTIAL));
        if token.is_none() && credential.is_none() {
            return Ok(None);
        }
        self.refuse_plain(address)?;
        let Some(credential) = credential.filter(|_| token.is_none()) else { return Ok(token) };
        let server = variable(TOKEN_SERVER);
        let server = server.unwrap_or_else(|| format!("{}/oauth/tokens", self.base));
        self.refuse_plain(&server)?;
        let request = self.client.post(&server).body(form(&credential));
        let request = request.header("content-type", "application/x-www-form-urlencoded");
        let failed = |problem: String| {
            Error::new(self.kind, redact(&server), format!("gives no key: {problem}"))
                .hint(format!("check `{CREDENTIAL}`, which is `client:secret`"))
        };
        let answer = request.send().await.map_err(|error| failed(told(error)))?;
        let status = answer.status();
        let bytes = answer.bytes().await.map_err(|error| failed(told(error)))?;
        let body: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        match body["access_token"].as_str().filter(|_| status.is_success()) {
            Some(token) => Ok(Some(token.to_string())),
            None => Err(failed(format!("the server answers {status}"))),
        }
    }

    /// A key that travels in the clear is everybody's.
    fn refuse_plain(&self, address: &str) -> Result<()> {
        let url = Url::parse(address).ok().filter(|url| url.scheme() != "https");
        let far = url.is_some_and(|url| match url.host() {
            Some(Host::Ipv4(address)) => !address.is_loopback(),
            Some(Host::Ipv6(address)) => !address.is_loopback(),
            Some(Host::Domain(name)) => name != "localhost",
            None => true,
        });
        if !far {
            return Ok(());
        }
        let problem = "is plain http, over which a key would be sent in the clear";
        Err(Error::new(self.kind, redact(address), problem).hint("use https"))
    }

    /// The table's metadata; none where there is no such table.
    ///
    /// # Errors
    /// When the catalogue does not say.
    pub async fn load(&self) -> Result<Option<Metadata>> {
        let (space, name) = self.table.names();
        let address = format!("{}/namespaces/{space}/tables/{name}", self.base);
        let answer = self.ask(Method::GET, &address, None).await?;
        if answer.status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        self.metadata(self.accepted(answer)?).map(Some)
    }

    /// Makes the table; where another was faster, gives that one.
    ///
    /// # Errors
    /// When the catalogue does not make it.
    pub async fn create(&self, schema: Value, spec: Value) -> Result<Metadata> {
        let (space, _) = self.table.names();
        let wanted = json!({ "name": self.table.name(), "schema": schema, "partition-spec": spec,
            "properties": { "format-version": "2" } });
        let address = format!("{}/namespaces/{space}/tables", self.base);
        let answer = self.ask(Method::POST, &address, Some(&wanted)).await?;
        if answer.status == StatusCode::CONFLICT {
            let found = self.load().await?;
            return found.ok_or_else(|| self.failed("neither makes the table nor has it", ""));
        }
        if answer.status == StatusCode::NOT_FOUND {
            let problem = "does not exist, nor does its namespace";
            return Err(self.failed(problem, "make the namespace in the catalogue first"));
        }
        self.metadata(self.accepted(answer)?)
    }

    /// Asks for changes of the table, if what they require still holds.
    ///
    /// # Errors
    /// When the catalogue refuses them for another reason.
    pub async fn commit(&self, requirements: Value, updates: Value) -> Result<Committed> {
        let (space, name) = self.table.names();
        let names: Vec<&str> = self.table.namespace().collect();
        let identifier = json!({ "namespace": names, "name": self.table.name() });
        let body =
            json!({ "identifier": identifier, "requirements": requirements, "updates": updates });
        let address = format!("{}/namespaces/{space}/tables/{name}", self.base);
        let answer = match self.once(Method::POST, &address, Some(&body)).await {
            Ok(answer) => answer,
            Err(error) => return Ok(Committed::Unknown(told(error))),
        };
        if answer.status == StatusCode::CONFLICT {
            return Ok(Committed::Refused(words(&answer)));
        }
        if answer.status.is_server_error() {
            return Ok(Committed::Unknown(words(&answer)));
        }
        self.accepted(answer).map(|_| Committed::Done)
    }

    fn metadata(&self, mut loaded: Value) -> Result<Metadata> {
        Metadata::parse(&self.shown(), loaded["metadata"].take(), self.kind)
    }

    fn failed(&self, problem: &str, hint: &str) -> Error {
        let error = Error::new(self.kind, self.shown(), problem);
        if hint.is_empty() { error } else { error.hint(hint) }
    }

    /// What an answer says, unless that is an error.
    fn accepted(&self, answer: Answer) -> Result<Value> {
        if answer.status.is_success() {
            return Ok(answer.body);
        }
        let said = words(&answer);
        Err(match answer.status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                let hint = format!("set `{TOKEN}`, or `{CREDENTIAL}`, in the environment");
                self.failed(&format!("the catalogue does not let us in: {said}"), &hint)
            }
            StatusCode::NOT_FOUND => {
                let hint = "a REST catalogue has its `/v1/config` below `catalog`";
                self.failed(&format!("is not found in the catalogue: {said}"), hint)
            }
            _ => self.failed(&format!("the catalogue answers: {said}"), ""),
        })
    }

    /// Asks until there is an answer. What is asked for twice is done once.
    async fn ask(&self, method: Method, address: &str, body: Option<&Value>) -> Result<Answer> {
        let mut wait = FIRST_WAIT;
        for attempt in 1..=TRIES {
            let found = self.once(method.clone(), address, body).await;
            let well = found.as_ref().is_ok_and(|answer| {
                let busy = answer.status == StatusCode::TOO_MANY_REQUESTS;
                !answer.status.is_server_error() && !busy
            });
            match found {
                Ok(answer) if well || attempt == TRIES => return Ok(answer),
                Err(error) if attempt == TRIES || error.is_builder() => {
                    let problem = format!("the catalogue cannot be reached: {}", told(error));
                    return Err(self.failed(&problem, "check `catalog`, and the network"));
                }
                _ => tokio::time::sleep(wait).await,
            }
            wait *= 2;
        }
        Err(self.failed("the catalogue does not answer", ""))
    }

    async fn once(
        &self,
        method: Method,
        address: &str,
        body: Option<&Value>,
    ) -> reqwest::Result<Answer> {
        let mut request = self.client.request(method, address);
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        let answer = request.send().await?;
        let status = answer.status();
        let bytes = answer.bytes().await?;
        let text = || Value::String(String::from_utf8_lossy(&bytes).into_owned());
        let body = serde_json::from_slice(&bytes).unwrap_or_else(|_| text());
        Ok(Answer { status, body })
    }
}

/// What a key is asked for with.
fn form(credential: &str) -> String {
    let (client, secret) = credential.split_once(':').unwrap_or(("", credential));
    let mut form = url::form_urlencoded::Serializer::new(String::new());
    form.append_pair("grant_type", "client_credentials");
    if !client.is_empty() {
        form.append_pair("client_id", client);
    }
    form.append_pair("client_secret", secret).append_pair("scope", "catalog");
    form.finish()
}

/// What a catalogue says of an error.
fn words(answer: &Answer) -> String {
    let said = answer.body["error"]["message"].as_str().unwrap_or_default();
    let said: String = redact(said).chars().take(MOST_WORDS).collect();
    if said.is_empty() { answer.status.to_string() } else { format!("{}: {said}", answer.status) }
}

/// What the network says, without the address, which stands before it.
fn told(error: reqwest::Error) -> String {
    let mut words = String::new();
    let mut cause = std::error::Error::source(&error);
    while let Some(error) = cause {
        words = error.to_string();
        cause = error.source();
    }
    redact(&if words.is_empty() { error.without_url().to_string() } else { words })
}

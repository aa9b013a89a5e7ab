//! From a bucket's URL to an open store: options from the environment, then from the job, each bucket once.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::client::{ClientConfigKey, SpawnedReqwestConnector};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::{BackoffConfig, ClientOptions, ObjectStore, Result as StoreResult, RetryConfig};
use parking_lot::Mutex;

use super::error::translate;
use super::location::{ObjectUrl, Scheme};
use super::store::Store;
use super::threads::handle;
use crate::error::{Error, Kind, Result};

/// A request that got no whole answer for so long is repeated.
const TIMEOUT: &str = "60s";
/// The same for a connection.
const CONNECT_TIMEOUT: &str = "10s";
/// Times that a request is repeated …
const RETRIES: usize = 10;
/// … for so long: credentials must live that long, too.
const RETRY_TIME: Duration = Duration::from_secs(180);

/// Options of each bucket, by its URL.
pub type StoreOptions = BTreeMap<String, BTreeMap<String, String>>;

/// The stores of a job. Cheap to clone; all clones share what is open.
#[derive(Clone, Default)]
pub struct Stores {
    options: Arc<StoreOptions>,
    open: Arc<Mutex<HashMap<String, Arc<dyn ObjectStore>>>>,
}

impl fmt::Debug for Stores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stores").field("buckets", &self.options.keys()).finish_non_exhaustive()
    }
}

impl PartialEq for Stores {
    fn eq(&self, other: &Self) -> bool {
        self.options == other.options
    }
}

impl Stores {
    /// Stores with these options, which were checked.
    pub fn new(options: StoreOptions) -> Stores {
        let named = |(bucket, options): (String, BTreeMap<String, String>)| {
            let bucket = ObjectUrl::parse(&bucket).map_or(bucket, |url| url.bucket().to_string());
            let lower = |(key, value): (String, String)| (key.to_ascii_lowercase(), value);
            (bucket, options.into_iter().map(lower).collect())
        };
        Stores { options: Arc::new(options.into_iter().map(named).collect()), open: Arc::default() }
    }

    /// The store of a URL; `kind` is that of its errors.
    ///
    /// # Errors
    /// When options do not go together, or there are no credentials.
    pub fn open(&self, url: &ObjectUrl, kind: Kind) -> Result<Store> {
        Ok(Store::new(url.with_key(""), self.object_store(url, kind)?, kind))
    }

    /// The same as `object_store` has it, for libraries that are built on that.
    ///
    /// # Errors
    /// As for [`Stores::open`].
    pub fn object_store(&self, url: &ObjectUrl, kind: Kind) -> Result<Arc<dyn ObjectStore>> {
        let mut open = self.open.lock();
        if let Some(store) = open.get(url.bucket()) {
            return Ok(Arc::clone(store));
        }
        let store = self.build(url, kind)?;
        open.insert(url.bucket().to_string(), Arc::clone(&store));
        Ok(store)
    }

    fn build(&self, url: &ObjectUrl, kind: Kind) -> Result<Arc<dyn ObjectStore>> {
        let none = BTreeMap::new();
        let options = self.options.get(url.bucket()).unwrap_or(&none);
        refuse_no_role(url, options, kind)?;
        let connector = SpawnedReqwestConnector::new(handle()?);
        let built: StoreResult<Arc<dyn ObjectStore>> = match url.scheme() {
            Scheme::S3 => {
                let builder = AmazonS3Builder::new().with_client_options(client());
                let builder = configured(options, "AWS_", builder, |builder, key, value| {
                    Ok(builder.with_config(AmazonS3ConfigKey::from_str(key)?, value))
                });
                let builder = builder.with_bucket_name(url.authority()).with_retry(retry());
                builder.with_http_connector(connector).build().map(|store| Arc::new(store) as _)
            }
            Scheme::Google => {
                let builder = GoogleCloudStorageBuilder::new().with_client_options(client());
                let builder = configured(options, "GOOGLE_", builder, |builder, key, value| {
                    Ok(builder.with_config(GoogleConfigKey::from_str(key)?, value))
                });
                let builder = builder.with_bucket_name(url.authority()).with_retry(retry());
                builder.with_http_connector(connector).build().map(|store| Arc::new(store) as _)
            }
            Scheme::Azure => {
                let builder = MicrosoftAzureBuilder::new().with_client_options(client());
                let builder = configured(options, "AZURE_", builder, |builder, key, value| {
                    Ok(builder.with_config(AzureConfigKey::from_str(key)?, value))
                });
                let builder = builder.with_url(url.bucket()).with_retry(retry());
                builder.with_http_connector(connector).build().map(|store| Arc::new(store) as _)
            }
        };
        built.map_err(|error| translate(kind, url, &error))
    }
}

/// A builder with the options of the environment, then those of the job, which know the bucket.
fn configured<B: Clone>(
    options: &BTreeMap<String, String>,
    prefix: &str,
    builder: B,
    set: impl Fn(B, &str, String) -> StoreResult<B>,
) -> B {
    let environment = std::env::vars_os().filter_map(|(name, value)| {
        let name = name.into_string().ok().filter(|name| name.starts_with(prefix))?;
        Some((name.to_ascii_lowercase(), value.into_string().ok()?))
    });
    let given = options.iter().map(|(key, value)| (key.clone(), value.clone()));
    // The environment has variables for other programs, too; the job's options were checked.
    environment
        .chain(given)
        .fold(builder, |builder, (key, value)| set(builder.clone(), &key, value).unwrap_or(builder))
}

/// What of the environment and of a job's options names credentials of a store, or says that none are needed.
struct Credentials {
    /// Variables of the environment.
    variables: &'static [&'static str],
    /// Parts of names of options.
    options: &'static [&'static str],
    hint: &'static str,
}

const S3: Credentials = Credentials {
    variables: &[
        "AWS_ACCESS_KEY_ID",
        "AWS_SKIP_SIGNATURE",
        "AWS_METADATA_ENDPOINT",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    ],
    options: &["skip_signature", "metadata_endpoint", "web_identity", "container_credentials"],
    hint: "set `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY` in the environment, `OVERTURN_INSTANCE_ROLE=true` for \
           the role of a machine in the cloud, or `skip_signature = \"true\"` in the `[storage]` section for a public \
           bucket; profiles in `~/.aws` are not read",
};
const GOOGLE: Credentials = Credentials {
    variables: &[
        "GOOGLE_SERVICE_ACCOUNT",
        "GOOGLE_SERVICE_ACCOUNT_PATH",
        "GOOGLE_SERVICE_ACCOUNT_KEY",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "GOOGLE_SKIP_SIGNATURE",
    ],
    options: &["service_account", "application_credentials", "skip_signature"],
    hint: "set `GOOGLE_APPLICATION_CREDENTIALS` in the environment, `OVERTURN_INSTANCE_ROLE=true` for the account of a \
           machine in the cloud, or `skip_signature = \"true\"` in the `[storage]` section for a public bucket",
};
const AZURE: Credentials = Credentials {
    variables: &[
        "AZURE_STORAGE_ACCOUNT_KEY",
        "AZURE_STORAGE_ACCESS_KEY",
        "AZURE_STORAGE_MASTER_KEY",
        "AZURE_STORAGE_SAS_KEY",
        "AZURE_STORAGE_SAS_TOKEN",
        "AZURE_STORAGE_CLIENT_SECRET",
        "AZURE_STORAGE_TOKEN",
        "AZURE_STORAGE_USE_EMULATOR",
        "AZURE_CLIENT_SECRET",
        "AZURE_FEDERATED_TOKEN_FILE",
        "AZURE_USE_AZURE_CLI",
        "AZURE_SKIP_SIGNATURE",
        "AZURE_MSI_ENDPOINT",
        "AZURE_IDENTITY_ENDPOINT",
    ],
    options: &[
        "use_emulator",
        "federated_token_file",
        "azure_cli",
        "skip_signature",
        "msi_endpoint",
    ],
    hint: "set `AZURE_STORAGE_ACCOUNT_KEY` in the environment, `OVERTURN_INSTANCE_ROLE=true` for the identity of a \
           machine in the cloud, or `skip_signature = \"true\"` in the `[storage]` section for a public container",
};

/// Lets a machine's role be asked for, at an address that only clouds have.
const ROLE: &str = "OVERTURN_INSTANCE_ROLE";

/// Without credentials the libraries ask a metadata service for a machine's role, with minutes of retries where there is
/// none, and whoever answers there is believed. That is done only where someone says that there is a role.
fn refuse_no_role(url: &ObjectUrl, options: &BTreeMap<String, String>, kind: Kind) -> Result<()> {
    let known = match url.scheme() {
        Scheme::S3 => S3,
        Scheme::Google => GOOGLE,
        Scheme::Azure => AZURE,
    };
    let set = |name: &&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let optional = options.keys().any(|key| known.options.iter().any(|part| key.contains(part)));
    let adc = url.scheme() == Scheme::Google && default_credentials().is_some();
    if optional || adc || set(&ROLE) || known.variables.iter().any(set) {
        return Ok(());
    }
    Err(Error::new(kind, url.to_string(), "no credentials were found").hint(known.hint))
}

/// What `gcloud auth application-default login` leaves.
fn default_credentials() -> Option<PathBuf> {
    let home = PathBuf::from(std::env::var_os("HOME")?);
    let path = home.join(".config/gcloud/application_default_credentials.json");
    path.exists().then_some(path)
}

fn client() -> ClientOptions {
    ClientOptions::new()
        .with_config(ClientConfigKey::Timeout, TIMEOUT)
        .with_config(ClientConfigKey::ConnectTimeout, CONNECT_TIMEOUT)
}

fn retry() -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig::default(),
        max_retries: RETRIES,
        retry_timeout: RETRY_TIME,
    }
}

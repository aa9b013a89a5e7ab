//! Options of a store as a job file may give them: `object_store`'s own names, and never a secret.

use std::collections::BTreeMap;
use std::str::FromStr;

use object_store::aws::AmazonS3ConfigKey;
use object_store::azure::AzureConfigKey;
use object_store::gcp::GoogleConfigKey;

use super::location::{ObjectUrl, Scheme};
use super::redact::redact;

/// Parts of names of options that grant access.
const SECRETS: [&str; 9] = [
    "access_key",
    "account_key",
    "master_key",
    "secret",
    "token",
    "sas_",
    "password",
    "service_account_key",
    "customer_key",
];

/// Names that have such a part, but tell where a secret is rather than what.
const HARMLESS: [&str; 5] = [
    "web_identity_token_file",
    "federated_token_file",
    "container_authorization_token_file",
    "token_service_url",
    "sts_token_url",
];

/// Names that the URL decides.
const OF_THE_URL: [&str; 5] =
    ["aws_bucket", "aws_bucket_name", "bucket", "bucket_name", "container_name"];

/// What is wrong with the options of a bucket: keys, problems and hints.
pub fn option_faults(
    bucket: &str,
    options: &BTreeMap<String, String>,
) -> Vec<(String, String, String)> {
    let key = |name: &str| format!("storage.\"{bucket}\".{name}");
    let url = match ObjectUrl::parse(bucket) {
        Ok(url) if url.key().is_empty() => url,
        Ok(url) => {
            let hint =
                format!("options belong to a bucket: write `[storage.\"{}\"]`", url.bucket());
            let problem = "is a path in a bucket, expected a bucket".to_string();
            return vec![(format!("storage.\"{bucket}\""), problem, hint)];
        }
        Err(problem) => {
            let shown = redact(bucket);
            let hint = "a section is called `[storage.\"s3://bucket\"]`".to_string();
            return vec![(format!("storage.\"{shown}\""), format!("is a URL {problem}"), hint)];
        }
    };
    let mut faults = Vec::new();
    for (name, value) in options {
        let lower = name.to_ascii_lowercase();
        if is_secret(&lower) {
            let problem = "is a secret, which a job file must not hold".to_string();
            faults.push((key(name), problem, secret_hint(url.scheme(), &lower)));
        } else if OF_THE_URL.contains(&lower.as_str()) {
            let problem = "is given, but the URL names the bucket".to_string();
            faults.push((key(name), problem, "leave the key out".to_string()));
        } else if !is_known(url.scheme(), &lower) {
            let problem = "is not an option of this store".to_string();
            let hint =
                "options are object_store's own, such as `endpoint`, `region` or `allow_http`";
            faults.push((key(name), problem, hint.to_string()));
        } else if redact(value) != *value {
            let problem = "holds credentials, which a job file must not hold".to_string();
            faults.push((key(name), problem, secret_hint(url.scheme(), "…")));
        }
    }
    faults
}

fn is_secret(name: &str) -> bool {
    SECRETS.iter().any(|part| name.contains(part))
        && !HARMLESS.iter().any(|end| name.ends_with(end))
}

fn is_known(scheme: Scheme, name: &str) -> bool {
    match scheme {
        Scheme::S3 => AmazonS3ConfigKey::from_str(name).is_ok(),
        Scheme::Google => GoogleConfigKey::from_str(name).is_ok(),
        Scheme::Azure => AzureConfigKey::from_str(name).is_ok(),
    }
}

/// Where the secret belongs instead.
fn secret_hint(scheme: Scheme, name: &str) -> String {
    let prefix = match scheme {
        Scheme::S3 => "aws_",
        Scheme::Google => "google_",
        Scheme::Azure => "azure_storage_",
    };
    let bare = name.trim_start_matches(prefix).trim_start_matches("azure_");
    format!("set it in the environment, as `{}{}`", prefix.to_uppercase(), bare.to_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(bucket: &str, options: &[(&str, &str)]) -> Vec<String> {
        let options = options.iter().map(|(key, value)| (key.to_string(), value.to_string()));
        let found = option_faults(bucket, &options.collect());
        found.into_iter().map(|(key, problem, hint)| format!("{key} {problem}: {hint}")).collect()
    }

    #[test]
    fn only_known_options_without_secrets_are_taken() {
        let good = [
            ("region", "eu-west-1"),
            ("endpoint", "http://127.0.0.1:9000"),
            ("allow_http", "true"),
        ];
        assert!(faults("s3://lake", &good).is_empty());
        assert!(
            faults("az://raw", &[("account_name", "lake"), ("use_emulator", "true")]).is_empty()
        );
        assert!(faults("gs://lake", &[("service_account", "/etc/key.json")]).is_empty());
        assert!(faults("s3://lake", &[("web_identity_token_file", "/run/token")]).is_empty());
        for (bucket, name) in [
            ("s3://lake", "access_key_id"),
            ("s3://lake", "AWS_SECRET_ACCESS_KEY"),
            ("s3://lake", "session_token"),
            ("s3://lake", "aws_sse_customer_key_base64"),
            ("az://raw", "account_key"),
            ("az://raw", "sas_token"),
            ("az://raw", "client_secret"),
            ("gs://lake", "service_account_key"),
        ] {
            let found = faults(bucket, &[(name, "value-of-it")]);
            assert!(found.len() == 1 && found[0].contains("is a secret"), "{name}: {found:?}");
            assert!(!found[0].contains("value-of-it"), "{found:?}");
        }
        let hint = &faults("s3://lake", &[("secret_access_key", "x")])[0];
        assert!(hint.ends_with("as `AWS_SECRET_ACCESS_KEY`"), "{hint}");
        assert!(faults("s3://lake", &[("regoin", "x")])[0].contains("not an option"));
        assert!(faults("s3://lake", &[("bucket", "x")])[0].contains("the URL names"));
        assert!(faults("s3://lake", &[("endpoint", "http://u:p@h")])[0].contains("credentials"));
        assert!(faults("s3://lake/raw", &[])[0].contains("`[storage.\"s3://lake\"]`"));
        assert!(faults("lake", &[])[0].contains("scheme"));
    }
}

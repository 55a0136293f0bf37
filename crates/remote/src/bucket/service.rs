//! Which service a URL of a bucket leads to, and how its variables configure `object_store`.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, AzureCredential, MicrosoftAzure, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorage, GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::list::PaginatedListStore;
use object_store::multipart::MultipartStore;
use object_store::path::Path;
use object_store::signer::Signer as _;
use object_store::{ObjectStore, RetryConfig};
use reqwest::header::{self, HeaderMap, HeaderName, HeaderValue};
use url::Url;

use crate::error::{Error, ErrorKind, Result, with_causes};

use super::connector::SharedConnector;

/// How long a signed URL holds. It is renewed when it is refused.
const SIGNED_FOR: Duration = Duration::from_secs(60 * 60);

/// The version of Azure's protocol that requests without a signature of `object_store` name.
const AZURE_VERSION: HeaderValue = HeaderValue::from_static("2023-11-03");

/// The variables that configure S3, as the programs of AWS name them.
// a list and not every variable with the prefix: others configure other programs, and an unknown one would be refused
static AWS_VARIABLES: &[&str] = &[
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_DEFAULT_REGION",
    "AWS_REGION",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_SKIP_SIGNATURE",
    "AWS_VIRTUAL_HOSTED_STYLE_REQUEST",
    "AWS_REQUEST_PAYER",
    "AWS_METADATA_ENDPOINT",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_ROLE_ARN",
    "AWS_ROLE_SESSION_NAME",
    "AWS_ENDPOINT_URL_STS",
    "AWS_CONDITIONAL_PUT",
    "AWS_SERVER_SIDE_ENCRYPTION",
    "AWS_SSE_KMS_KEY_ID",
];

/// The variables that configure Google Cloud Storage.
static GOOGLE_VARIABLES: &[&str] = &[
    "GOOGLE_SERVICE_ACCOUNT",
    "GOOGLE_SERVICE_ACCOUNT_PATH",
    "GOOGLE_SERVICE_ACCOUNT_KEY",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_BEARER_TOKEN",
    "GOOGLE_SKIP_SIGNATURE",
    "GOOGLE_BASE_URL",
];

/// The variables that configure Azure's blob storage.
static AZURE_VARIABLES: &[&str] = &[
    "AZURE_STORAGE_ACCOUNT_NAME",
    "AZURE_STORAGE_ACCOUNT_KEY",
    "AZURE_STORAGE_SAS_TOKEN",
    "AZURE_STORAGE_TOKEN",
    "AZURE_STORAGE_ENDPOINT",
    "AZURE_CLIENT_ID",
    "AZURE_CLIENT_SECRET",
    "AZURE_TENANT_ID",
    "AZURE_AUTHORITY_HOST",
    "AZURE_FEDERATED_TOKEN_FILE",
    "AZURE_IDENTITY_ENDPOINT",
    "AZURE_USE_AZURE_CLI",
    "AZURE_SKIP_SIGNATURE",
];

/// The operations that writing and listing need of a bucket.
pub(super) trait BucketStore: ObjectStore + MultipartStore + PaginatedListStore {}

impl<T: ObjectStore + MultipartStore + PaginatedListStore> BucketStore for T {}

/// A service that stores objects.
enum Provider {
    S3(Arc<AmazonS3>),
    Google(Arc<GoogleCloudStorage>),
    Azure(Arc<MicrosoftAzure>),
}

/// A bucket at a service.
pub(super) struct BucketService {
    provider: Provider,
    /// Where the keys are.
    base: Url,
    /// Whether requests need no credentials.
    is_public: bool,
}

/// A URL of an object, and what is sent with requests of it.
#[derive(Clone)]
pub(crate) struct ObjectAccess {
    pub(crate) url: Url,
    /// Sent to the host of the URL only.
    pub(crate) headers: HeaderMap,
}

impl BucketService {
    /// The service of a URL's scheme, and the bucket that the part behind `://` names.
    pub(super) fn open(
        scheme: &str,
        rest: &str,
        retry: RetryConfig,
        connector: SharedConnector,
        variables: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self> {
        let host = rest.split('/').next().unwrap_or_default();
        match scheme {
            "s3" => s3(bucket_name(host, scheme)?, retry, connector, variables),
            "gs" => google(bucket_name(host, scheme)?, retry, connector, variables),
            _ => azure(host, scheme, retry, connector, variables),
        }
    }

    pub(super) fn store(&self) -> Arc<dyn BucketStore> {
        match &self.provider {
            Provider::S3(store) => Arc::clone(store) as _,
            Provider::Google(store) => Arc::clone(store) as _,
            Provider::Azure(store) => Arc::clone(store) as _,
        }
    }

    /// The URL of a key, without a signature.
    pub(super) fn location(&self, path: &Path) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            // segment by segment, so that each is percent-encoded and a slash stays one
            segments.pop_if_empty().extend(path.as_ref().split('/'));
        }
        url
    }

    /// The URL of a key, signed or with a token beside it unless the bucket is public.
    pub(super) async fn access(&self, path: &Path) -> object_store::Result<ObjectAccess> {
        let mut headers = HeaderMap::new();
        let mut url = self.location(path);
        if let Provider::Azure(_) = &self.provider {
            headers.insert(HeaderName::from_static("x-ms-version"), AZURE_VERSION);
        }
        if self.is_public {
            return Ok(ObjectAccess { url, headers });
        }
        let get = reqwest::Method::GET;
        match &self.provider {
            Provider::S3(store) => url = store.signed_url(get, path, SIGNED_FOR).await?,
            Provider::Google(store) => {
                // a token, as the accounts of persons sign nothing
                let credential = store.credentials().get_credential().await?;
                headers.extend(bearer(&credential.bearer));
            }
            Provider::Azure(store) => match &*store.credentials().get_credential().await? {
                AzureCredential::AccessKey(_) => {
                    url = store.signed_url(get, path, SIGNED_FOR).await?;
                }
                AzureCredential::SASToken(pairs) => {
                    url.query_pairs_mut().extend_pairs(pairs);
                }
                AzureCredential::BearerToken(token) => headers.extend(bearer(token)),
            },
        }
        Ok(ObjectAccess { url, headers })
    }
}

fn bearer(token: &str) -> Option<(HeaderName, HeaderValue)> {
    // a token with other characters is refused by the service
    let mut value = HeaderValue::from_str(&format!("Bearer {token}")).ok()?;
    // keeps the token out of logs and of HTTP/2's table of headers
    value.set_sensitive(true);
    Some((header::AUTHORIZATION, value))
}

fn invalid(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::Invalid, what)
}

fn bucket_name<'u>(host: &'u str, scheme: &str) -> Result<&'u str> {
    let is_name = |c: u8| c.is_ascii_alphanumeric() || b"-_.".contains(&c);
    let is_sound = !host.is_empty() && host.bytes().all(is_name) && !host.starts_with('.');
    is_sound.then_some(host).ok_or_else(|| {
        let form = match scheme {
            "abfs" | "abfss" => "container@account.dfs.core.windows.net/path".to_owned(),
            "az" => "container/key".to_owned(),
            _ => "bucket/key".to_owned(),
        };
        invalid(format!("this names no bucket: write {scheme}://{form}"))
    })
}

/// The values of the variables that are set, with the keys of a builder.
fn configured<K: FromStr>(
    names: &[&str],
    variables: &dyn Fn(&str) -> Option<String>,
) -> Result<Vec<(K, String)>> {
    let set = names.iter().filter_map(|name| {
        // an empty variable is an unset one, as for the services' own programs
        let value = variables(name).filter(|value| !value.is_empty())?;
        let key = name.to_ascii_lowercase().parse();
        let key = key.map_err(|_| invalid(format!("the variable {name} is not known")));
        Some(key.map(|key| (key, value)))
    });
    set.collect()
}

/// The URL behind which the keys are.
fn base_url(endpoint: &str, bucket: &str, variable: &str) -> Result<Url> {
    let url = Url::parse(&format!("{}/{bucket}", endpoint.trim_end_matches('/')));
    let is_web = |url: &Url| matches!(url.scheme(), "http" | "https");
    let url = url.ok().filter(is_web);
    url.ok_or_else(|| invalid(format!("{variable} is no URL")))
}

/// A builder that refuses its configuration.
fn refused(e: object_store::Error) -> Error {
    invalid(with_causes(&e))
}

fn s3(
    bucket: &str,
    retry: RetryConfig,
    connector: SharedConnector,
    variables: &dyn Fn(&str) -> Option<String>,
) -> Result<BucketService> {
    let mut builder = AmazonS3Builder::new()
        .with_bucket_name(bucket)
        .with_retry(retry)
        // deleting several objects by one request is not known to every service
        .with_config(AmazonS3ConfigKey::DisableBulkDelete, "true")
        .with_http_connector(connector);
    for (key, value) in configured(AWS_VARIABLES, variables)? {
        builder = builder.with_config(key, value);
    }
    let value = |key| {
        let value = builder.get_config_value(&key);
        value.filter(|value| !value.is_empty())
    };
    let endpoint = value(AmazonS3ConfigKey::Endpoint);
    // the default of `object_store`
    let region = value(AmazonS3ConfigKey::Region).unwrap_or_else(|| "us-east-1".to_owned());
    let is_public = value(AmazonS3ConfigKey::SkipSignature).is_some_and(|value| value == "true");
    // the user named the endpoint
    let is_http = endpoint
        .as_ref()
        .is_some_and(|url| url.starts_with("http://"));
    let endpoint = endpoint.unwrap_or_else(|| format!("https://s3.{region}.amazonaws.com"));
    let base = base_url(&endpoint, bucket, "AWS_ENDPOINT_URL")?;
    let store = builder.with_allow_http(is_http).build().map_err(refused)?;
    Ok(BucketService {
        provider: Provider::S3(Arc::new(store)),
        base,
        is_public,
    })
}

fn google(
    bucket: &str,
    retry: RetryConfig,
    connector: SharedConnector,
    variables: &dyn Fn(&str) -> Option<String>,
) -> Result<BucketService> {
    let mut builder = GoogleCloudStorageBuilder::new()
        .with_bucket_name(bucket)
        .with_retry(retry)
        .with_http_connector(connector);
    for (key, value) in configured(GOOGLE_VARIABLES, variables)? {
        builder = builder.with_config(key, value);
    }
    let endpoint = variables("GOOGLE_BASE_URL").filter(|url| !url.is_empty());
    let endpoint = endpoint.unwrap_or_else(|| "https://storage.googleapis.com".to_owned());
    let skip = builder.get_config_value(&GoogleConfigKey::SkipSignature);
    let is_public = skip.is_some_and(|value| value == "true");
    let base = base_url(&endpoint, bucket, "GOOGLE_BASE_URL")?;
    let store = builder.build().map_err(refused)?;
    Ok(BucketService {
        provider: Provider::Google(Arc::new(store)),
        base,
        is_public,
    })
}

/// `az://container/key` of the account that a variable names, or `abfss://container@account.dfs.core.windows.net/path`.
fn azure(
    host: &str,
    scheme: &str,
    retry: RetryConfig,
    connector: SharedConnector,
    variables: &dyn Fn(&str) -> Option<String>,
) -> Result<BucketService> {
    let (container, account) = match host.split_once('@') {
        // `account.dfs.core.windows.net`: the account is the first label
        Some((container, host)) => (container, host.split('.').next()),
        None => (host, None),
    };
    let container = bucket_name(container, scheme)?;
    let mut builder = MicrosoftAzureBuilder::new()
        .with_container_name(container)
        .with_retry(retry)
        .with_http_connector(connector);
    for (key, value) in configured(AZURE_VARIABLES, variables)? {
        builder = builder.with_config(key, value);
    }
    // after the variables: the account of the URL takes precedence
    if let Some(account) = account {
        builder = builder.with_account(bucket_name(account, scheme)?);
    }
    let value = |key| {
        let value = builder.get_config_value(&key);
        value.filter(|value| !value.is_empty())
    };
    let Some(account) = value(AzureConfigKey::AccountName) else {
        return Err(invalid(format!(
            "the account of this container is not known: set AZURE_STORAGE_ACCOUNT_NAME, or write \
             abfss://{container}@account.dfs.core.windows.net/path"
        )));
    };
    let endpoint = value(AzureConfigKey::Endpoint);
    // the user named the endpoint: see `s3`
    let is_http = endpoint
        .as_ref()
        .is_some_and(|url| url.starts_with("http://"));
    let endpoint = endpoint.unwrap_or_else(|| format!("https://{account}.blob.core.windows.net"));
    let is_public = value(AzureConfigKey::SkipSignature).is_some_and(|value| value == "true");
    let base = base_url(&endpoint, container, "AZURE_STORAGE_ENDPOINT")?;
    let store = builder.with_allow_http(is_http).build().map_err(refused)?;
    Ok(BucketService {
        provider: Provider::Azure(Arc::new(store)),
        base,
        is_public,
    })
}

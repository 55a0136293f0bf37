//! Buckets of S3 and of what speaks its protocol. `object_store` finds credentials, signs URLs and lists; ranges are requested
//! from the signed URLs as from any web server, so that all of this crate's bounds hold for them too.

use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::client::{ClientOptions, HttpClient, HttpConnector};
use object_store::path::Path;
use object_store::signer::Signer as _;
use object_store::{ObjectStore as _, RetryConfig};
use url::Url;

use crate::error::{Error, ErrorKind, Result, with_causes};
use crate::names::is_plain;

/// The variables that configure S3, as the programs of AWS name them.
static VARIABLES: &[&str] = &[
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
];

/// How long a signed URL holds. It is renewed when it is refused.
const SIGNED_FOR: Duration = Duration::from_secs(60 * 60);
/// The longest that finding credentials or a listing takes.
const PATIENCE: Duration = Duration::from_secs(60);
/// Names that are listed.
const NAMES: usize = 1_000_000;

/// A bucket and its credentials.
pub(crate) struct Bucket {
    store: AmazonS3,
    /// Where the keys are, if requests are not signed: for public buckets.
    public: Option<Url>,
}

/// Connections of `object_store` by the client of this crate.
#[derive(Debug)]
struct SharedConnector(reqwest::Client);

impl HttpConnector for SharedConnector {
    fn connect(&self, _options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.0.clone()))
    }
}

impl Bucket {
    pub(crate) fn new(
        name: &str,
        client: reqwest::Client,
        variables: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self> {
        let invalid = |what: &str| Error::new(ErrorKind::Invalid, what);
        let is_name = |c: u8| c.is_ascii_alphanumeric() || b"-_.".contains(&c);
        if name.is_empty() || !name.bytes().all(is_name) || name.starts_with('.') {
            return Err(invalid("this names no bucket: write s3://bucket/key"));
        }
        let retry = RetryConfig {
            max_retries: 2,
            retry_timeout: PATIENCE,
            ..RetryConfig::default()
        };
        let mut builder = AmazonS3Builder::new()
            .with_bucket_name(name)
            .with_retry(retry)
            .with_http_connector(SharedConnector(client));
        for variable in VARIABLES {
            if let Some(value) = variables(variable).filter(|value| !value.is_empty()) {
                let key: AmazonS3ConfigKey = variable
                    .to_ascii_lowercase()
                    .parse()
                    .map_err(|_| invalid("a variable of AWS is not known"))?;
                builder = builder.with_config(key, value);
            }
        }
        let value = |key| {
            builder
                .get_config_value(&key)
                .filter(|value| !value.is_empty())
        };
        let endpoint = value(AmazonS3ConfigKey::Endpoint);
        let region = value(AmazonS3ConfigKey::Region).unwrap_or_else(|| "us-east-1".to_owned());
        let unsigned = value(AmazonS3ConfigKey::SkipSignature).is_some_and(|value| value == "true");
        // the user named the endpoint
        builder = builder.with_allow_http(
            endpoint
                .as_ref()
                .is_some_and(|url| url.starts_with("http://")),
        );
        let public = if unsigned {
            let endpoint = endpoint.unwrap_or_else(|| format!("https://s3.{region}.amazonaws.com"));
            let url = Url::parse(&format!("{}/{name}", endpoint.trim_end_matches('/')));
            Some(url.map_err(|_| invalid("AWS_ENDPOINT_URL is no URL"))?)
        } else {
            None
        };
        let store = builder.build().map_err(|e| invalid(&with_causes(&e)))?;
        Ok(Self { store, public })
    }

    /// The URL of a key, signed where requests are.
    pub(crate) async fn url(&self, key: &str) -> Result<Url> {
        let path = parse(key)?;
        if let Some(public) = &self.public {
            let mut url = public.clone();
            url.path_segments_mut()
                .map_err(|()| Error::new(ErrorKind::Invalid, "AWS_ENDPOINT_URL is no URL"))?
                .extend(key.split('/'));
            return Ok(url);
        }
        let signed = self
            .store
            .signed_url(reqwest::Method::GET, &path, SIGNED_FOR);
        match tokio::time::timeout(PATIENCE, signed).await {
            Ok(Ok(url)) => Ok(url),
            Ok(Err(e)) => Err(no_credentials(&with_causes(&e))),
            Err(_) => Err(no_credentials("no answer")),
        }
    }

    /// The names of the objects directly behind a prefix.
    pub(crate) async fn list(&self, prefix: &str) -> Result<Vec<String>> {
        let prefix = if prefix.is_empty() {
            None
        } else {
            Some(parse(prefix)?)
        };
        let listed = self.store.list_with_delimiter(prefix.as_ref());
        let listed = tokio::time::timeout(PATIENCE, listed)
            .await
            .map_err(|_| {
                Error::new(
                    ErrorKind::TimedOut,
                    "the bucket's listing takes longer than a minute",
                )
            })?
            .map_err(|e| {
                let kind = match &e {
                    object_store::Error::NotFound { .. } => ErrorKind::NotFound,
                    object_store::Error::PermissionDenied { .. }
                    | object_store::Error::Unauthenticated { .. } => ErrorKind::Denied,
                    _ => ErrorKind::Network,
                };
                Error::new(
                    kind,
                    format!("the bucket cannot be listed: {}", with_causes(&e)),
                )
            })?;
        if listed.objects.len() > NAMES {
            return Err(Error::refused(
                "the bucket has more than a million objects behind this prefix",
            ));
        }
        let objects = listed.objects.iter();
        let names = objects.filter_map(|object| object.location.filename());
        Ok(names
            .filter(|name| is_plain(name))
            .map(str::to_owned)
            .collect())
    }
}

fn parse(key: &str) -> Result<Path> {
    let path = Path::parse(key);
    path.map_err(|e| {
        Error::new(
            ErrorKind::Invalid,
            format!("this names no object: {}", with_causes(&e)),
        )
    })
}

fn no_credentials(why: &str) -> Error {
    Error::new(
        ErrorKind::Denied,
        format!(
            "no credentials of the bucket: {why}; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_SKIP_SIGNATURE=true \
             for a public bucket"
        ),
    )
}

/// A key of a bucket whose URL is signed when it is needed.
#[derive(Clone)]
pub(crate) struct BucketKey {
    pub(crate) bucket: Arc<Bucket>,
    pub(crate) key: String,
}

impl BucketKey {
    pub(crate) async fn url(&self) -> Result<Url> {
        self.bucket.url(&self.key).await
    }
}

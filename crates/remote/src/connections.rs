//! HTTP clients, which keep connections open: what they send with each request, and which addresses they connect to.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use reqwest::header::{self, HeaderMap, HeaderValue};
use reqwest::redirect;
use rustls_platform_verifier::BuilderVerifierExt as _;

use crate::address::{Allowed, GuardedResolver};
use crate::error::{Error, ErrorKind, Result, with_causes};
use crate::options::RemoteOptions;
use crate::runtime::PerProcess;

/// HTTP clients: one per rule for addresses, each made when it is needed. They keep connections open.
pub(crate) struct Connections {
    clients: [OnceLock<reqwest::Client>; 3],
    /// See [`RemoteOptions::connect`].
    timeout: Duration,
}

impl Connections {
    fn new(timeout: Duration) -> Self {
        Self {
            clients: Default::default(),
            timeout,
        }
    }

    /// Those of this process for this time: the default is shared, so that further URLs find connections open.
    pub(crate) fn with_timeout(timeout: Duration) -> Arc<Self> {
        static SHARED: PerProcess<Arc<Connections>> = PerProcess::new();
        let shared = SHARED.get(|| Arc::new(Self::new(RemoteOptions::default().connect)));
        if timeout == shared.timeout {
            Arc::clone(shared)
        } else {
            Arc::new(Self::new(timeout))
        }
    }

    /// The client that connects to these addresses.
    pub(crate) fn to(&self, allowed: Allowed) -> Result<&reqwest::Client> {
        let cell = &self.clients[allowed as usize];
        if let Some(client) = cell.get() {
            return Ok(client);
        }
        let client = self.build(allowed)?;
        Ok(cell.get_or_init(|| client))
    }

    fn build(&self, allowed: Allowed) -> Result<reqwest::Client> {
        let failed = |e: &dyn std::error::Error| Error::new(ErrorKind::Network, with_causes(e));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_platform_verifier())
            .map_err(|e| failed(&e))?
            .with_no_client_auth();
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let headers = HeaderMap::from_iter([(
            header::ACCEPT_ENCODING,
            HeaderValue::from_static("identity"),
        )]);
        let builder = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .redirect(redirect::Policy::none())
            .retry(reqwest::retry::never())
            .default_headers(headers)
            .user_agent(concat!("anamnesis/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(self.timeout)
            .tcp_nodelay(true);
        let builder = match allowed {
            Allowed::Any => builder,
            guarded => builder.dns_resolver(Arc::new(GuardedResolver(guarded))),
        };
        builder.build().map_err(|e| failed(&e))
    }
}

//! Tokens of registries, which a request gets that was refused without one.

use std::pin::Pin;

use reqwest::header::{HeaderMap, HeaderValue};
use url::Url;

use super::Client;
use crate::address::Allowed;
use crate::error::{Error, Result};
use crate::registry::RegistryLogin;
use crate::resource::Resource;

/// The longest answer of a service of tokens. Tokens have some 3 KiB.
const LONGEST: u64 = 64 << 10;

impl Client {
    /// The authorization after an answer of status 401 of a registry to a request with this one; `None` if the answer names no
    /// service of tokens.
    pub(super) async fn renewed_token(
        &self,
        login: &RegistryLogin,
        registry: &Url,
        sent: Option<&HeaderValue>,
        headers: &HeaderMap,
    ) -> Result<Option<HeaderValue>> {
        let Some((url, given)) = login.token_request(headers)? else {
            return Ok(None);
        };
        let _turn = login.turn().await;
        // another request has got one meanwhile
        if let Some(token) = login.other_token(sent) {
            return Ok(Some(token));
        }
        // a server must not name an address that a redirect of it could not lead to: its answer would be sent to the server
        let allowed = match url.origin() == registry.origin() {
            true => Allowed::Any,
            false => self.rule_for(registry, &url).await?,
        };
        let resource = Resource::tokens(url, allowed, given);
        let text = self.token_answer(&resource).await.map_err(|e| {
            let what = format!("the registry's service of tokens: {e}");
            Error::new(e.kind(), what)
        })?;
        login.take_token(&text).map(Some)
    }

    /// The answer of a service of tokens; boxed, as any request may request a token.
    fn token_answer<'a>(
        &'a self,
        resource: &'a Resource,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<u8>>> + Send + 'a>> {
        Box::pin(self.document(resource, LONGEST))
    }
}

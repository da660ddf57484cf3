//! Registers the credentials of stores as secrets, wherever they come from: an address, the environment, a
//! file, or a service of the cloud. A store may repeat them in the text of an error.

use reqsign_core::{Context, ProvideCredential, Result};
use thalweg_redact::keep_credential;

/// A credential with its secret parts.
pub(super) trait Secrets {
    /// Calls `keep` with each secret part.
    fn each(&self, keep: impl FnMut(&str));
}

/// A provider whose credentials are registered before their first use.
#[derive(Debug)]
pub(super) struct Noting<P>(pub(super) P);

impl<P: ProvideCredential> ProvideCredential for Noting<P>
where
    P::Credential: Secrets,
{
    type Credential = P::Credential;

    async fn provide_credential(&self, context: &Context) -> Result<Option<Self::Credential>> {
        let provided = self.0.provide_credential(context).await?;
        provided.iter().for_each(|credential| credential.each(keep_credential));
        Ok(provided)
    }
}

impl Secrets for reqsign_aws_v4::Credential {
    fn each(&self, mut keep: impl FnMut(&str)) {
        keep(&self.access_key_id);
        keep(&self.secret_access_key);
        self.session_token.iter().for_each(|token| keep(token));
    }
}

impl Secrets for reqsign_google::Credential {
    fn each(&self, mut keep: impl FnMut(&str)) {
        self.service_account.iter().for_each(|account| keep(&account.private_key));
        self.token.iter().for_each(|token| keep(&token.access_token));
    }
}

impl Secrets for reqsign_azure_storage::Credential {
    fn each(&self, mut keep: impl FnMut(&str)) {
        match self {
            Self::SharedKey { account_key, .. } => keep(account_key),
            Self::BearerToken { token, .. } => keep(token),
            Self::SasToken { token, .. } => {
                keep(token);
                token.split('&').filter_map(|pair| pair.strip_prefix("sig=")).for_each(keep);
            }
        }
    }
}

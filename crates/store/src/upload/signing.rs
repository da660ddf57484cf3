//! The lookup of credentials: in the same places and the same order as OpenDAL.

use opendal::services::{AzblobConfig, GcsConfig, S3Config};
use reqsign_core::{Context, Env, OsEnv, ProvideCredentialChain, Signer, StaticEnv};
use reqsign_file_read_tokio::TokioFileRead;

use super::noting::Noting;
use crate::transport::{Redirects, client};

fn context() -> Context {
    Context::new().with_file_read(TokioFileRead).with_http_send(client(Redirects::Refused)).with_env(OsEnv)
}

/// Finds credentials of Amazon. `service` is the name in the scope of signatures.
pub(crate) fn amazon(config: &S3Config, service: &str, region: &str) -> Signer<reqsign_aws_v4::Credential> {
    use reqsign_aws_v4::{
        AssumeRoleCredentialProvider, DefaultCredentialProvider, RequestSigner, StaticCredentialProvider,
    };
    let mut usual = DefaultCredentialProvider::builder();
    if config.disable_config_load {
        usual = usual.no_env().no_profile();
    } else if let Some(profile) = config.profile.as_deref().filter(|profile| !profile.is_empty()) {
        usual = usual.with_profile(profile);
    }
    if config.disable_ec2_metadata {
        usual = usual.no_imds();
    }
    let mut chain = ProvideCredentialChain::new().push(usual.build());
    if let (Some(key), Some(secret)) = (&config.access_key_id, &config.secret_access_key) {
        let mut given = StaticCredentialProvider::new(key, secret);
        if let Some(token) = &config.session_token {
            given = given.with_session_token(token);
        }
        chain = chain.push_front(given);
    }
    if let Some(role) = &config.role_arn {
        let asking = Signer::new(context(), Noting(chain), RequestSigner::new("sts", region));
        let mut assuming = AssumeRoleCredentialProvider::new(role.clone(), asking)
            .with_region(region.to_owned())
            .with_regional_sts_endpoint();
        if let Some(id) = &config.external_id {
            assuming = assuming.with_external_id(id.clone());
        }
        if let Some(name) = &config.role_session_name {
            assuming = assuming.with_role_session_name(name.clone());
        }
        if let Some(seconds) = config.assume_role_duration_seconds {
            assuming = assuming.with_duration_seconds(seconds);
        }
        chain = ProvideCredentialChain::new().push(assuming);
    }
    Signer::new(context(), Noting(chain), RequestSigner::new(service, region))
}

pub(super) fn google(config: &GcsConfig) -> Signer<reqsign_google::Credential> {
    use reqsign_google::{
        DefaultCredentialProvider, FileCredentialProvider, RequestSigner, StaticCredentialProvider,
        TokenCredentialProvider, VmMetadataCredentialProvider,
    };
    let scope = config.scope.as_deref().unwrap_or("https://www.googleapis.com/auth/devstorage.read_write");
    let mut envs = OsEnv.vars();
    envs.insert("GOOGLE_SCOPE".to_owned(), scope.to_owned());
    let context = context().with_env(StaticEnv { home_dir: OsEnv.home_dir(), envs });
    let mut usual = DefaultCredentialProvider::builder();
    if config.disable_config_load {
        usual = usual.no_env().no_well_known();
    }
    if config.disable_vm_metadata || config.service_account.is_some() {
        usual = usual.no_vm_metadata();
    }
    let mut chain = ProvideCredentialChain::new().push(usual.build());
    if let Some(account) = config.service_account.as_deref().filter(|_| !config.disable_vm_metadata) {
        let asking = VmMetadataCredentialProvider::new().with_scope(scope).with_service_account(account);
        chain = chain.push(asking);
    }
    if let Some(path) = &config.credential_path {
        chain = chain.push_front(FileCredentialProvider::new(path).with_scope(scope));
    }
    if let Some(given) =
        config.credential.as_deref().and_then(|text| StaticCredentialProvider::from_base64(text).ok())
    {
        chain = chain.push_front(given.with_scope(scope));
    }
    if let Some(token) = &config.token {
        chain = chain.push_front(TokenCredentialProvider::new(token));
    }
    Signer::new(context, Noting(chain), RequestSigner::new("storage").with_scope(scope))
}

pub(super) fn microsoft(config: &AzblobConfig, endpoint: &str) -> Signer<reqsign_azure_storage::Credential> {
    use reqsign_azure_storage::{DefaultCredentialProvider, RequestSigner, StaticCredentialProvider};
    let host = endpoint.split_once("://").map_or(endpoint, |(_, host)| host);
    let in_host = host.split_once(".blob.core.").map(|(account, _)| account);
    let account = config.account_name.as_deref().or(in_host);
    let mut chain = ProvideCredentialChain::new().push(DefaultCredentialProvider::new());
    if let (Some(account), Some(key)) = (account, &config.account_key) {
        chain = chain.push_front(StaticCredentialProvider::new_shared_key(account, key));
    }
    if let Some(token) = &config.sas_token {
        chain = chain.push_front(StaticCredentialProvider::new_sas_token(token));
    }
    Signer::new(context(), Noting(chain), RequestSigner::new())
}

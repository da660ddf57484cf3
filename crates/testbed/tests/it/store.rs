//! A client for stores, without retries, which would hide the faults.

use opendal::{HttpTransporter, OperationContext, Operator};
use opendal_http_transport_reqwest::ReqwestTransport;
use thalweg_testbed::{Azure, S3};

pub fn s3(s3: &S3, endpoint: &str, bucket: &str, secret: &str) -> Operator {
    let service = opendal::services::S3::default()
        .endpoint(endpoint)
        .bucket(bucket)
        .region(s3.region())
        .access_key_id(s3.access_key())
        .secret_access_key(secret)
        .disable_config_load();
    with_client(Operator::new(service).unwrap())
}

pub fn azure(azure: &Azure, endpoint: &str, container: &str) -> Operator {
    let service = opendal::services::Azblob::default()
        .endpoint(endpoint)
        .container(container)
        .account_name(azure.account())
        .account_key(azure.key());
    with_client(Operator::new(service).unwrap())
}

fn with_client(operator: Operator) -> Operator {
    // An error means that a provider is installed already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let transport = HttpTransporter::new(ReqwestTransport::new(client));
    operator.with_context(OperationContext::new().with_http_transport(transport))
}

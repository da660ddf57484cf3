//! The options of Amazon's services, which the consumer and the producers share.

use super::Takes::Text;
use super::{OptionRule, idle, used};

/// The sink `objects` has them in its `url`.
pub(super) const AMAZON: &[OptionRule] = &[
    used("Region", Text, "`region`"),
    used(
        "Endpoint",
        Text,
        "`url`; `endpoint` for `objects`, with the bucket in the host unless that is an address",
    ),
    used(
        "Credential/Type",
        Text,
        "`auth` for `static` and `shared`; otherwise credentials are looked for as Amazon's tools do. With `none`, requests of `producer.AwsS3` are not signed",
    ),
    used("Credential/Id", Text, "`auth: { access_key_id: … }`; `access_key_id` for `objects`"),
    used("Credential/Secret", Text, "`auth: { secret_access_key: … }`; `secret_access_key` for `objects`"),
    used("Credential/Token", Text, "`auth: { session_token: … }`; `session_token` for `objects`"),
    used("Credential/Profile", Text, "`auth: { profile: … }`; `profile` for `objects`"),
    idle("Credential/File", Text, "set the environment variable `AWS_SHARED_CREDENTIALS_FILE`"),
    used("Credential/AssumeRole", Text, "`auth: { role: … }`; `role_arn` for `objects`"),
];

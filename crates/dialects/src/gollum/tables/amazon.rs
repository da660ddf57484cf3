//! The options of Amazon's services, which the consumer and the producers share.

use super::Takes::Text;
use super::{OptionRule, idle, used};

pub(super) const AMAZON: &[OptionRule] = &[
    used("Region", Text, "`region`"),
    used("Endpoint", Text, "`url`"),
    used(
        "Credential/Type",
        Text,
        "`auth` for `static` and `shared`; otherwise credentials are looked for as Amazon's tools do",
    ),
    used("Credential/Id", Text, "`auth: { access_key_id: … }`"),
    used("Credential/Secret", Text, "`auth: { secret_access_key: … }`"),
    used("Credential/Token", Text, "`auth: { session_token: … }`"),
    used("Credential/Profile", Text, "`auth: { profile: … }`"),
    idle("Credential/File", Text, "set the environment variable `AWS_SHARED_CREDENTIALS_FILE`"),
    used("Credential/AssumeRole", Text, "`auth: { role: … }`"),
];

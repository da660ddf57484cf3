//! The options of Kafka's clusters, which the consumer and the producer share.

use super::made::{self, Made};
use super::report::Report;
use super::settings::Settings;

/// Adds the brokers, and how to connect to them.
pub(super) fn cluster(settings: &Settings, report: &mut Report, options: &mut Made) {
    let mut brokers = settings.list("Servers");
    if brokers.is_empty() {
        brokers.push(("localhost:9092".to_owned(), settings.span));
    }
    let brokers = brokers.into_iter().map(|(broker, span)| made::text(broker, span)).collect();
    options.put("brokers", made::list(brokers, settings.at("Servers")));
    options.text("client_id", settings.text_or("ClientId", "gollum"), settings.at("ClientId"));
    tls(settings, report, options);
    auth(settings, report, options);
}

fn tls(settings: &Settings, report: &mut Report, options: &mut Made) {
    const FILES: [(&str, &str); 4] = [
        ("TlsKeyLocation", "key"),
        ("TlsCertificateLocation", "certificate"),
        ("TlsCaLocation", "ca"),
        ("TlsServerName", "server_name"),
    ];
    if settings.flag("TlsEnable") != Some(true) {
        settings.idle(&FILES.map(|(name, _)| name), "without `TlsEnable`", report);
        settings.idle(&["TlsInsecureSkipVerify"], "without `TlsEnable`", report);
        return;
    }
    let mut tls = Made::new(settings.at("TlsEnable"));
    for (name, option) in FILES {
        if let Some(text) = settings.text(name).filter(|text| !text.is_empty()) {
            tls.text(option, text, settings.at(name));
        }
    }
    if settings.flag("TlsInsecureSkipVerify") == Some(true) {
        tls.flag("insecure", true, settings.at("TlsInsecureSkipVerify"));
    }
    options.put("tls", tls.done());
}

fn auth(settings: &Settings, report: &mut Report, options: &mut Made) {
    if settings.flag("SaslEnable") != Some(true) {
        settings.idle(&["SaslUser", "SaslUsername", "SaslPassword"], "without `SaslEnable`", report);
        return;
    }
    let name = if settings.has("SaslUsername") { "SaslUsername" } else { "SaslUser" };
    let mut auth = Made::new(settings.at("SaslEnable"));
    auth.text("user", settings.text_or(name, "gollum"), settings.at(name));
    auth.text("password", settings.text_or("SaslPassword", ""), settings.at("SaslPassword"));
    auth.text("mechanism", "plain", settings.at("SaslEnable"));
    options.put("auth", auth.done());
}

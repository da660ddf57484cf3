//! The options of Kafka's clusters, which the consumer and the producer share, and those of librdkafka.

use thalweg_config::Span;

use super::made::{self, Made};
use super::report::Report;
use super::settings::Settings;

/// Adds the brokers, and how to connect to them.
pub(super) fn cluster(settings: &Settings, report: &mut Report, options: &mut Made) {
    brokers(settings, settings.list("Servers"), options);
    tls(settings, report, options);
    auth(settings, report, options);
}

/// Does the same for the producer whose options are those of librdkafka.
pub(super) fn librdkafka(settings: &Settings, report: &mut Report, options: &mut Made) {
    const FILES: [(&str, &str); 3] =
        [("SslKeyLocation", "key"), ("SslCertificateLocation", "certificate"), ("SslCaLocation", "ca")];
    const USER: [&str; 3] = ["SaslUsername", "SaslPassword", "SaslMechanism"];
    let servers = settings.list("Servers");
    let each =
        servers.iter().flat_map(|(text, span)| text.split(',').map(move |broker| (broker.trim(), *span)));
    let each = each.filter(|(broker, _)| !broker.is_empty());
    brokers(settings, each.map(|(broker, span)| (with_port(broker), span)).collect(), options);
    let at = settings.at("SecurityProtocol");
    let protocol = settings.text_or("SecurityProtocol", "plaintext").to_ascii_lowercase();
    if !["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"].contains(&protocol.as_str()) {
        report
            .mistake(at, format!("`{protocol}` is not a security protocol."))
            .help("There are `plaintext`, `ssl`, `sasl_plaintext` and `sasl_ssl`.");
    }
    if protocol.ends_with("ssl") {
        options.put("tls", tls_files(settings, &FILES, at).done());
    } else {
        settings.idle(&FILES.map(|(name, _)| name), "without TLS (`SecurityProtocol: ssl`)", report);
    }
    if protocol.starts_with("sasl") {
        let mut auth = Made::new(at);
        auth.text("user", settings.text_or("SaslUsername", ""), settings.at("SaslUsername"));
        auth.text("password", settings.text_or("SaslPassword", ""), settings.at("SaslPassword"));
        auth.text("mechanism", mechanism(settings, report), settings.at("SaslMechanism"));
        options.put("auth", auth.done());
    } else {
        settings.idle(&USER, "without SASL (`SecurityProtocol: sasl_ssl`)", report);
    }
}

fn mechanism(settings: &Settings, report: &mut Report) -> &'static str {
    match settings.text_or("SaslMechanism", "GSSAPI").to_ascii_uppercase().as_str() {
        "PLAIN" => "plain",
        "SCRAM-SHA-256" => "scram_sha_256",
        "SCRAM-SHA-512" => "scram_sha_512",
        other => {
            report
                .mistake(settings.at("SaslMechanism"), format!("`{other}` has no equivalent here."))
                .help("There are `PLAIN`, `SCRAM-SHA-256` and `SCRAM-SHA-512`.");
            "plain"
        }
    }
}

/// Adds the port that librdkafka takes if an address has none.
fn with_port(broker: &str) -> String {
    let behind_host = broker.rsplit_once(']').map_or(broker, |(_, behind)| behind);
    if behind_host.contains(':') { broker.to_owned() } else { format!("{broker}:9092") }
}

fn brokers(settings: &Settings, mut brokers: Vec<(String, Span)>, options: &mut Made) {
    if brokers.is_empty() {
        brokers.push(("localhost:9092".to_owned(), settings.span));
    }
    let brokers = brokers.into_iter().map(|(broker, span)| made::text(broker, span)).collect();
    options.put("brokers", made::list(brokers, settings.at("Servers")));
    options.text("client_id", settings.text_or("ClientId", "gollum"), settings.at("ClientId"));
}

/// Returns the options of TLS that name files.
fn tls_files(settings: &Settings, files: &[(&'static str, &str)], at: Span) -> Made {
    let mut tls = Made::new(at);
    for (name, option) in files {
        if let Some(text) = settings.text(name).filter(|text| !text.is_empty()) {
            tls.text(option, text, settings.at(name));
        }
    }
    tls
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
    let mut tls = tls_files(settings, &FILES, settings.at("TlsEnable"));
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

//! The sources: one file and one line each.

thalweg_engine::components! {
    source http::HttpSource;
    source http_client::HttpClient;
    source http_upload::HttpUpload;
    source otlp::OtlpSource;
    source prometheus_scrape::PrometheusScrape;
    source proxy::ProxySource;
    source socket::SocketSource;
    source sse::SseSource;
    source syslog::SyslogSource;
    source websocket_client::WebsocketClientSource;
}

//! The sinks: one file and one line each.

thalweg_engine::components! {
    sink http::HttpConfig;
    sink proxy::ProxyConfig;
    sink socket::SocketConfig;
    sink statsd::StatsdConfig;
    sink websocket::WebsocketConfig;
}

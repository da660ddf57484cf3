//! The sinks: one file and one line each.

thalweg_engine::components! {
    sink clickhouse::ClickhouseConfig;
    sink elasticsearch::ElasticsearchConfig;
    sink http::HttpConfig;
    sink influxdb::InfluxdbConfig;
    sink loki::LokiConfig;
    sink proxy::ProxyConfig;
    sink socket::SocketConfig;
    sink statsd::StatsdConfig;
    sink websocket::WebsocketConfig;
}

//! The sinks: one file and one line each.

thalweg_engine::components! {
    sink clickhouse::ClickhouseConfig;
    sink datadog_logs::DatadogLogsConfig;
    sink elasticsearch::ElasticsearchConfig;
    sink http::HttpConfig;
    sink influxdb::InfluxdbConfig;
    sink loki::LokiConfig;
    sink otlp::OtlpConfig;
    sink prometheus_remote_write::PrometheusRemoteWriteConfig;
    sink proxy::ProxyConfig;
    sink socket::SocketConfig;
    sink splunk_hec::SplunkHecConfig;
    sink statsd::StatsdConfig;
    sink websocket::WebsocketConfig;
    sink websocket_client::WebsocketClientSink;
}

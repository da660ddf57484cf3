"""Records the samples of this folder, each unless it exists. Usage: record.py FOLDER

Needs opentelemetry-sdk and opentelemetry-exporter-otlp-proto-http (here 1.45.2).
"""
import base64, gzip, http.server, json, os, sys, threading, time
OUT=sys.argv[1]
class H(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        b=self.rfile.read(int(self.headers['content-length']))
        print(self.path, self.headers.get('content-encoding'), self.headers['content-type'], len(b), flush=True)
        if self.headers.get('content-encoding')=='gzip': b=gzip.decompress(b)
        p=f"{OUT}/{self.path.rsplit('/',1)[1]}.bin"
        if not os.path.exists(p): open(p,'wb').write(b)
        self.send_response(200); self.send_header('content-length','0'); self.end_headers()
    def log_message(self,*a): pass
srv=http.server.ThreadingHTTPServer(('127.0.0.1',0),H); port=srv.server_port
threading.Thread(target=srv.serve_forever,daemon=True).start()
base=f"http://127.0.0.1:{port}/v1/"
from opentelemetry.sdk.resources import Resource
res=Resource({"service.name":"shop","service.version":"1.2.3","host.cpus":4,"debug":True,"zones":["a","b"]}, "https://opentelemetry.io/schemas/1.30.0")
# traces
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider, sampling
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, BatchSpanProcessor
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
tp=TracerProvider(resource=res)
tp.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=base+'traces')))
t=tp.get_tracer("shop.orders","0.1",schema_url="https://example.com/schema",attributes={"team":"blue"})
with t.start_as_current_span("GET /orders",kind=trace.SpanKind.SERVER,attributes={"http.method":"GET","http.status":200,"ratio":0.5,"ok":True,"tags":["x","y"]}) as root:
    root.add_event("cache miss",{"key":"o-1","size":12})
    with t.start_as_current_span("select",kind=trace.SpanKind.CLIENT,links=[trace.Link(root.get_span_context(),{"why":"parent"})]) as s:
        s.set_status(trace.Status(trace.StatusCode.ERROR,"no such table"))
    root.set_status(trace.Status(trace.StatusCode.OK))
t2=tp.get_tracer("other")
with t2.start_as_current_span("plain"): pass
tp.force_flush()
# metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.metrics.view import View, ExponentialBucketHistogramAggregation
from opentelemetry.metrics import Observation
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
mp=MeterProvider(resource=res,metric_readers=[PeriodicExportingMetricReader(OTLPMetricExporter(endpoint=base+'metrics'),export_interval_millis=10**8)],
  views=[View(instrument_name="size",aggregation=ExponentialBucketHistogramAggregation())])
m=mp.get_meter("shop.metrics","2.0")
c=m.create_counter("orders","1","Orders taken")
with t.start_as_current_span("measured"):
    c.add(3,{"kind":"book"}); c.add(2,{"kind":"pen"})
    f=m.create_counter("weight","kg"); f.add(1.5)
    u=m.create_up_down_counter("open"); u.add(-4)
    m.create_observable_gauge("temperature",callbacks=[lambda o:[Observation(21.25,{"room":"1"}),Observation(-3,{"room":"2"})]],unit="Cel",description="Of the air")
    h=m.create_histogram("duration","ms","How long")
    for v in (1,7,30,4000): h.record(v,{"route":"/"})
    e=m.create_histogram("size","By")
    for v in (0,1.5,100,-2): 
        if v>=0: e.record(v)
mp.force_flush()
# logs
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http import Compression
lp=LoggerProvider(resource=res)
lp.add_log_record_processor(BatchLogRecordProcessor(OTLPLogExporter(endpoint=base+'logs',compression=Compression.Gzip)))
lg=lp.get_logger("shop.log","0.9",attributes={"team":"blue"})
now=1700000000123456789
with t.start_as_current_span("logging"):
    lg.emit(LogRecord(timestamp=now,observed_timestamp=now+1000,severity_number=SeverityNumber.INFO,severity_text="INFO",body="order o-1 taken",attributes={"user":"ada","count":3,"price":9.5,"raw":b"\x00\xff"}))
lg.emit(LogRecord(timestamp=now+1,severity_number=SeverityNumber.ERROR,body={"error":"no stock","items":[1,2.5,None,{"a":"b"}],"big":2**60},attributes={}))
lg.emit(LogRecord(timestamp=now+2,event_name="order.cancelled",attributes={"order":"o-2","nan":float("nan")}))
lg.emit(LogRecord(timestamp=now+3,body="zürich \"quoted\"\nsecond line"))
lp.force_flush(); lp.shutdown()
time.sleep(0.2)

# Every field and kind once, which the SDK does not produce: a summary, exemplars, dropped counts.
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as ms
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as ts
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2 as ls
from google.protobuf import json_format
r=ms.ExportMetricsServiceRequest(); rm=r.resource_metrics.add(); rm.schema_url='https://example.com/r'
rm.resource.dropped_attributes_count=1
a=rm.resource.attributes.add(); a.key='service.name'; a.value.string_value='shop'
er=rm.resource.entity_refs.add(); er.type='service'; er.id_keys.append('service.name')
sm=rm.scope_metrics.add(); sm.scope.name='all'; sm.scope.dropped_attributes_count=2; sm.schema_url='https://example.com/s'
m1=sm.metrics.add(); m1.name='latency'; m1.unit='s'; x=m1.metadata.add(); x.key='kind'; x.value.string_value='old'
p=m1.summary.data_points.add(); p.start_time_unix_nano=1700000000000000000; p.time_unix_nano=1700000060000000000; p.count=3; p.sum=4.5
q=p.quantile_values.add(); q.quantile=0.5; q.value=1.25
q=p.quantile_values.add(); q.quantile=0.99; q.value=3.0
m2=sm.metrics.add(); m2.name='wait'; m2.histogram.aggregation_temporality=1
p=m2.histogram.data_points.add(); p.time_unix_nano=1700000060000000000; p.count=2; p.sum=-0.5; p.min=-1; p.max=0.5
p.bucket_counts.extend([1,1,0]); p.explicit_bounds.extend([0.0,10.0]); p.flags=1
e=p.exemplars.add(); e.time_unix_nano=1700000059000000000; e.as_int=-7; e.trace_id=bytes(range(16)); e.span_id=bytes(range(8)); f=e.filtered_attributes.add(); f.key='user'; f.value.int_value=5
m3=sm.metrics.add(); m3.name='size'; m3.exponential_histogram.aggregation_temporality=2
p=m3.exponential_histogram.data_points.add(); p.time_unix_nano=1700000060000000000; p.count=6; p.scale=-1; p.zero_count=1; p.zero_threshold=0.001
p.positive.offset=-3; p.positive.bucket_counts.extend([1,0,2]); p.negative.offset=2; p.negative.bucket_counts.extend([2])
m4=sm.metrics.add(); m4.name='stopped'; p=m4.gauge.data_points.add(); p.time_unix_nano=1700000060000000000; p.flags=1
m5=sm.metrics.add(); m5.name='total'; m5.sum.aggregation_temporality=2; m5.sum.is_monotonic=True; p=m5.sum.data_points.add(); p.time_unix_nano=1700000060000000000; p.as_int=2**62
p=m5.sum.data_points.add(); p.time_unix_nano=1700000061000000000; p.as_double=0.0
open(f"{OUT}/all_metrics.bin",'wb').write(r.SerializeToString(deterministic=True))
r=ts.ExportTraceServiceRequest(); ss=r.resource_spans.add().scope_spans.add(); s=ss.spans.add()
s.trace_id=bytes(range(16)); s.span_id=bytes(range(8)); s.parent_span_id=bytes(range(8,16)); s.trace_state='a=b'; s.name='everything'; s.kind=5
s.start_time_unix_nano=1700000000000000001; s.end_time_unix_nano=1700000000000000002; s.dropped_attributes_count=1; s.dropped_events_count=2; s.dropped_links_count=3; s.flags=0x301
s.status.code=2; s.status.message='no'
v=s.events.add(); v.time_unix_nano=1700000000000000001; v.name='e'; v.dropped_attributes_count=4
k=v.attributes.add(); k.key='list'; k.value.array_value.values.add().bool_value=False; k.value.array_value.values.add().bytes_value=b'ab'
l=s.links.add(); l.trace_id=bytes(16); l.span_id=bytes(8); l.trace_state='c=d'; l.dropped_attributes_count=5; l.flags=1
open(f"{OUT}/all_traces.bin",'wb').write(r.SerializeToString(deterministic=True))
def hexed(v):
    if isinstance(v,dict):
        return {n:(base64.b64decode(w).hex() if n in('traceId','spanId','parentSpanId') else hexed(w)) for n,w in v.items()}
    return [hexed(w) for w in v] if isinstance(v,list) else v
for name,cls in (('logs',ls.ExportLogsServiceRequest),('all_metrics',ms.ExportMetricsServiceRequest),('all_traces',ts.ExportTraceServiceRequest)):
    q=cls(); q.ParseFromString(open(f"{OUT}/{name}.bin",'rb').read())
    json.dump(hexed(json_format.MessageToDict(q,use_integers_for_enums=True)),open(f"{OUT}/{name}.json",'w'),indent=1,ensure_ascii=False)
    if q.SerializeToString(deterministic=True)!=open(f"{OUT}/{name}.bin",'rb').read(): print('not canonical',name)
for name,cls in (('metrics',ms.ExportMetricsServiceRequest),('traces',ts.ExportTraceServiceRequest)):
    q=cls(); q.ParseFromString(open(f"{OUT}/{name}.bin",'rb').read())
    if q.SerializeToString(deterministic=True)!=open(f"{OUT}/{name}.bin",'rb').read(): print('not canonical',name)

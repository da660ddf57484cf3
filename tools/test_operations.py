"""Tests what operators get in `packaging`: alerts, a dashboard, manifests and a chart of Kubernetes, and the unit.

Names of metrics and labels are those of docs/operating/metrics.md, which a test of the program keeps true. The chart is rendered
here by the few rules that it uses. If helm is installed, its result is compared as well.
"""

import hashlib
import json
import re
import shutil
import subprocess
import unittest
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
PACKAGING = ROOT / "packaging"
CHART = PACKAGING / "kubernetes/chart"
PAGE = (ROOT / "docs/operating/metrics.md").read_text()
HISTOGRAMS = re.findall(r"^\| `(thalweg_\w+)` \| histogram \|", PAGE, re.MULTILINE)
METRICS = set(re.findall(r"^\| `(thalweg_\w+)` \|", PAGE, re.MULTILINE)) | {
    f"{name}_{part}" for name in HISTOGRAMS for part in ("bucket", "sum", "count")
}
# `le` is the bound of a bucket of a histogram.
LABELS = set(re.findall(r"`(component|kind|role|version|from|output|to|holder)`", PAGE)) | {"instance", "job", "le"}
RELEASE = "orders"


class Monitoring(unittest.TestCase):
    def check(self, expression):
        """Fails for a metric or a label that the program does not have."""
        names = set(re.findall(r"\bthalweg_\w+", expression))
        self.assertLessEqual(names, METRICS, expression)
        matchers = re.findall(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"", expression)
        groups = [label for group in re.findall(r"\b(?:by|without) \(([^)]*)\)", expression) for label in group.split(",")]
        self.assertLessEqual({label.strip() for label in matchers + groups}, LABELS, expression)
        self.assertTrue(names or expression.startswith("up{"), expression)
        self.assertEqual([expression.count(c) for c in "({["], [expression.count(c) for c in ")}]"], expression)

    def test_the_page_has_metrics_and_labels(self):
        self.assertGreater(len(METRICS), 15)
        self.assertEqual(LABELS, {"component", "kind", "role", "version", "from", "output", "to", "holder", "instance", "job", "le"})

    def test_alerts_use_metrics_that_exist_and_say_what_to_do(self):
        page = (ROOT / "docs/operating/monitoring.md").read_text()
        anchors = {heading.lower() for heading in re.findall(r"^#+ (\w+)$", page, re.MULTILINE)}
        rules = [rule for group in yaml.safe_load((PACKAGING / "monitoring/alerts.yaml").read_text())["groups"] for rule in group["rules"]]
        self.assertGreater(len(rules), 5)
        self.assertEqual(len({rule["alert"] for rule in rules}), len(rules))
        for rule in rules:
            with self.subTest(rule["alert"]):
                self.check(rule["expr"])
                self.assertIn(rule["labels"]["severity"], ("warning", "critical"))
                notes = rule["annotations"]
                self.assertTrue(notes["summary"] and notes["description"].endswith("."))
                self.assertLessEqual(set(re.findall(r"\$labels\.(\w+)", str(notes))), LABELS)
                path, _, anchor = notes["runbook_url"].partition("#")
                self.assertTrue(path.endswith("/docs/operating/monitoring.md"))
                self.assertEqual(anchor, rule["alert"].lower())
                self.assertIn(anchor, anchors)

    def test_the_dashboard_uses_metrics_that_exist(self):
        dashboard = json.loads((PACKAGING / "monitoring/dashboard.json").read_text())
        panels = dashboard["panels"]
        self.assertEqual(len({panel["id"] for panel in panels}), len(panels))
        for panel in panels:
            with self.subTest(panel["title"]):
                self.assertTrue(panel["description"])
                for target in panel["targets"]:
                    self.check(target["expr"])
                    self.assertLessEqual(set(re.findall(r"{{(\w+)}}", target["legendFormat"])), LABELS)
        shown = {name for panel in panels for target in panel["targets"] for name in re.findall(r"\bthalweg_\w+", target["expr"])}
        for important in ("received_messages_total", "sent_messages_total", "retrying", "buffer_oldest_seconds", "lag"):
            self.assertIn(f"thalweg_component_{important}", shown)
        for important in ("latency_seconds_bucket", "oldest_unsettled_seconds"):
            self.assertIn(f"thalweg_source_{important}", shown)


class Kubernetes(unittest.TestCase):
    def workload(self, **changes):
        return next(document for document in rendered(changes) if "template" in document.get("spec", {}))

    def container(self, **changes):
        return self.workload(**changes)["spec"]["template"]["spec"]["containers"][0]

    def test_the_manifests_are_what_the_chart_makes_by_default(self):
        written = list(yaml.safe_load_all((PACKAGING / "kubernetes/thalweg.yaml").read_text()))
        self.assertEqual(comparable(written), comparable(rendered({})))

    @unittest.skipUnless(shutil.which("helm"), "helm is not installed")
    def test_helm_renders_the_same(self):
        line = ["helm", "template", RELEASE, CHART]
        made = subprocess.run(line, check=True, stdout=subprocess.PIPE, text=True).stdout
        self.assertEqual(comparable(yaml.safe_load_all(made)), comparable(rendered({})))
        subprocess.run(["helm", "lint", "--strict", CHART], check=True, stdout=subprocess.DEVNULL)

    def test_a_state_needs_one_process_and_a_volume(self):
        kept, none = self.workload(), self.workload(state={"enabled": False})
        self.assertEqual((kept["kind"], none["kind"]), ("StatefulSet", "Deployment"))
        self.assertEqual(kept["spec"]["replicas"], 1)
        self.assertEqual([claim["metadata"]["name"] for claim in kept["spec"]["volumeClaimTemplates"]], ["data"])
        self.assertNotIn("volumeClaimTemplates", none["spec"])

    def test_dead_letters_have_a_folder_that_can_be_written(self):
        # Without --state they would be beside the configuration, which is read-only.
        page = (ROOT / "docs/operating/container.md").read_text()
        job = re.search(r"`kind: Job`, `args: \[(.*?)\]`", page)[1].split(", ")
        for arguments in (self.container()["args"], self.container(state={"enabled": False})["args"], job):
            self.assertEqual(arguments[2:4], ["--state", "/data/state"])
        for changes in ({}, {"state": {"enabled": False}}):
            mounts = {mount["mountPath"]: mount for mount in self.container(**changes)["volumeMounts"]}
            self.assertNotIn("readOnly", mounts["/data"])

    def test_each_volume_is_mounted_and_each_mount_has_a_volume(self):
        for changes in ({}, {"state": {"enabled": False}}):
            spec = self.workload(**changes)["spec"]
            pod = spec["template"]["spec"]
            volumes = [volume["name"] for volume in pod["volumes"]]
            volumes += [claim["metadata"]["name"] for claim in spec.get("volumeClaimTemplates", [])]
            self.assertEqual(sorted(volumes), sorted(mount["name"] for mount in pod["containers"][0]["volumeMounts"]))

    def test_probes_ask_for_paths_that_are_served(self):
        source = (ROOT / "crates/frontend/src/api/routes.rs").read_text()
        served = set(re.findall(r'\bread\(\s*"(/[^"]*)",\s', source))
        self.assertLessEqual({"/", "/metrics", "/health", "/ready"}, served)
        container = self.container()
        names = {port["name"] for port in container["ports"]}
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            request = container[probe]["httpGet"]
            self.assertIn(request["path"], served)
            self.assertIn(request["port"], names)
        # A restart does not help while a server is down.
        self.assertNotEqual(container["livenessProbe"]["httpGet"]["path"], "/health")

    def test_the_options_exist(self):
        page = (ROOT / "docs/reference/commands.md").read_text()
        section = page[page.index("## `thalweg run`") :].split("\n## ", 1)[0]
        known = set(re.findall(r"--[a-z-]+", section))
        arguments = self.container(extraArgs=["--strict"])["args"]
        self.assertEqual(arguments[:2], ["run", "/etc/thalweg/config.yaml"])
        self.assertEqual(arguments[-1], "--strict")
        self.assertLessEqual({word for word in arguments if word.startswith("--")}, known)
        image = (PACKAGING / "Containerfile").read_text()
        usual = json.loads(re.search(r"^CMD (\[.*\])$", image, re.MULTILINE)[1])
        self.assertEqual(self.container()["args"], usual)

    def test_the_process_has_few_rights_and_time_to_drain(self):
        pod = self.workload()["spec"]["template"]["spec"]
        self.assertGreater(pod["terminationGracePeriodSeconds"], 60)
        self.assertTrue(pod["securityContext"]["runAsNonRoot"])
        image = (PACKAGING / "Containerfile").read_text()
        self.assertIn(f"USER {pod['securityContext']['runAsUser']}:{pod['securityContext']['runAsGroup']}\n", image)
        self.assertFalse(pod["automountServiceAccountToken"])
        rights = pod["containers"][0]["securityContext"]
        self.assertEqual(rights["capabilities"], {"drop": ["ALL"]})
        self.assertTrue(rights["readOnlyRootFilesystem"])
        self.assertFalse(rights["allowPrivilegeEscalation"])

    def test_the_configuration_of_the_values_arrives(self):
        config = {"sources": {"in": "stdin"}, "memory": "64MiB"}
        found = next(document for document in rendered({"config": config}) if document["kind"] == "ConfigMap")
        self.assertEqual(yaml.safe_load(found["data"]["config.yaml"]), config)

    def test_the_version_is_that_of_the_program(self):
        version = re.search(r'^version = "(.+)"$', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[1]
        chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
        values = yaml.safe_load((CHART / "values.yaml").read_text())
        self.assertEqual((chart["appVersion"], values["image"]["tag"]), (version, version))


class Unit(unittest.TestCase):
    def test_systemd_waits_until_the_service_is_ready_and_watches_it(self):
        unit = (PACKAGING / "thalweg@.service").read_text()
        for line in ("Type=notify", "TimeoutStartSec=5min", "WatchdogSec=5min", "CapabilityBoundingSet=", "SystemCallFilter=@system-service"):
            self.assertIn(f"\n{line}\n", unit)


def comparable(documents):
    """The documents by their names, without the sum of the configuration, which a person would not write."""
    found = {}
    for document in documents:
        metadata = document.get("spec", {}).get("template", {}).get("metadata", {})
        metadata.get("annotations", {}).pop("checksum/config", None)
        if document["kind"] == "ConfigMap":
            # Keys may have another order.
            document["data"]["config.yaml"] = yaml.safe_load(document["data"]["config.yaml"])
        found[document["kind"], document["metadata"]["name"]] = document
    return found


def rendered(changes):
    """The documents of the chart. `changes` replaces values, and the entries of those that are mappings."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    for name, value in changes.items():
        merges = isinstance(values[name], dict) and name != "config"
        values[name] = values[name] | value if merges else value
    scope = {"Values": values, "Release": {"Name": RELEASE}}
    documents = []
    for path in sorted((CHART / "templates").glob("*.yaml")):
        text = render(parse(tokens(path.read_text()))[0], scope)
        assert "{{" not in text, path
        documents += [document for document in yaml.safe_load_all(text) if document]
    return documents


def tokens(text):
    """The texts of a template and the code between them. A hyphen removes the space before the code."""
    position = 0
    for found in re.finditer(r"\s*\{\{-\s*(.*?)\s*\}\}|\{\{\s*(.*?)\s*\}\}", text):
        yield text[position : found.start()]
        yield {"code": found[1] or found[2]}
        position = found.end()
    yield text[position:]


def parse(remaining, ends=()):
    """The parts of a template: texts, code, and blocks as (word, argument, parts, other parts). Also what ended them."""
    parts = []
    for token in remaining:
        word, _, argument = token["code"].partition(" ") if isinstance(token, dict) else ("", "", "")
        if word in ends:
            return parts, word
        if word in ("if", "range"):
            first, end = parse(remaining, ("else", "end"))
            other = parse(remaining, ("end",))[0] if end == "else" else []
            parts.append((word, argument, first, other))
        else:
            parts.append(token)
    return parts, None


def render(parts, scope):
    text = ""
    for part in parts:
        if isinstance(part, str):
            text += part
        elif isinstance(part, dict):
            text += str(evaluate(part["code"], scope))
        else:
            word, argument, first, other = part
            value = evaluate(argument, scope)
            if word == "if":
                text += render(first if value else other, scope)
            else:
                text += "".join(render(first, item) for item in value)
    return text


def evaluate(code, scope):
    """The value of a pipeline, such as `toYaml .Values.config | nindent 4`."""
    first, *rest = (step.split() for step in code.split(" | "))
    value = called(first[:-1], find(first[-1], scope))
    for step in rest:
        value = called(step, value)
    return value


def find(path, scope):
    for name in path.split("."):
        scope = scope[name] if name else scope
    return scope


def called(step, value):
    match step:
        case []:
            return value
        case ["toYaml"]:
            return yaml.safe_dump(value, default_flow_style=False).rstrip("\n")
        case ["nindent", count]:
            return "".join(f"\n{' ' * int(count)}{line}" for line in value.splitlines())
        case ["quote"]:
            return json.dumps(str(value))
        case ["sha256sum"]:
            return hashlib.sha256(value.encode()).hexdigest()
    raise AssertionError(f"a template uses {step}, which this test does not know")

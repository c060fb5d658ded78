"""The manifests for Kubernetes and the compose file: their schemas, offline, and that their parts fit together.

    manifests.py ROOT KAIJU_SERVER MODEL
"""

import copy
import os
import pathlib
import re
import subprocess
import sys
import unittest

try:
    import check_jsonschema  # noqa: F401
    import kubernetes_validate
    import yaml
except ImportError:
    print("skipped: this wants kubernetes-validate and check-jsonschema (tests/fleet/requirements.txt)")
    sys.exit(77)

ROOT, SERVER, MODEL = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
FLEET = ROOT / "examples" / "fleet"
sys.path.insert(0, str(FLEET))
import files  # noqa: E402
from fleet import BALANCE_FACTOR, Server  # noqa: E402
from fleet import find_haproxy, free_ports  # noqa: E402

OLDEST = "1.30"  # of Kubernetes: from there on preStop may sleep
OF_OTHERS = {"InferencePool", "HTTPRoute"}  # kinds that Kubernetes itself does not have
BLOCK = 64


def documents():
    return [one for path in sorted((FLEET / "kubernetes").glob("*.yaml")) for one in yaml.safe_load_all(path.read_text())]


def known_options():
    return set(re.findall(r"--[a-z-]+", subprocess.run([SERVER, "--help"], capture_output=True, text=True).stdout))


class Kubernetes(unittest.TestCase):
    def setUp(self):
        self.all = documents()

    def one(self, kind, name):
        found = [one for one in self.all if (one["kind"], one["metadata"]["name"]) == (kind, name)]
        self.assertEqual(len(found), 1, (kind, name))
        return found[0]

    def labels(self, name):
        return self.one("Deployment", name)["spec"]["template"]["metadata"]["labels"]

    def container(self, name):
        return self.one("Deployment", name)["spec"]["template"]["spec"]["containers"][0]

    def ports(self, name):
        return {port["name"]: port["containerPort"] for port in self.container(name)["ports"]}

    def arguments(self):
        return {name: value for name, _, value in (one.partition("=") for one in self.container("kaiju")["args"])}

    def test_every_document_follows_its_schema_and_has_no_unknown_field(self):
        for document in self.all:
            if document["kind"] not in OF_OTHERS:
                with self.subTest(kind=document["kind"], name=document["metadata"]["name"]):
                    kubernetes_validate.validate(document, OLDEST, strict=True)

    def test_the_schemas_find_wrong_fields(self):
        for change in ({"terminationGracePeriodSecond": 1}, {"terminationGracePeriodSeconds": "long"}):
            wrong = copy.deepcopy(self.one("Deployment", "kaiju"))
            wrong["spec"]["template"]["spec"].update(change)
            with self.assertRaises(kubernetes_validate.ValidationError):
                kubernetes_validate.validate(wrong, OLDEST, strict=True)

    def test_servers_are_started_with_options_that_they_have(self):
        self.assertEqual(set(self.arguments()) - known_options(), set())

    def test_a_server_has_time_to_drain(self):
        pod = self.one("Deployment", "kaiju")["spec"]["template"]["spec"]
        waits = self.container("kaiju")["lifecycle"]["preStop"]["sleep"]["seconds"] + int(self.arguments()["--drain-seconds"])
        self.assertGreater(pod["terminationGracePeriodSeconds"], waits)

    def test_every_probe_asks_a_port_that_there_is(self):
        for name, kind in (("kaiju", "httpGet"), ("kaiju-picker", "grpc")):
            container, ports = self.container(name), self.ports(name)
            for probe in ("startupProbe", "readinessProbe", "livenessProbe") if kind == "httpGet" else ("readinessProbe", "livenessProbe"):
                asked = container[probe][kind]["port"]
                self.assertIn(asked, set(ports) | set(ports.values()), (name, probe))
        self.assertEqual({self.container("kaiju")[probe]["httpGet"]["path"] for probe in ("startupProbe", "readinessProbe", "livenessProbe")}, {"/health"})

    def test_selectors_meet_the_pods_and_targets_their_ports(self):
        for name in ("kaiju", "kaiju-picker"):
            labels = self.labels(name).items()
            deployment, service = self.one("Deployment", name)["spec"], self.one("Service", name)["spec"]
            for selector in (deployment["selector"]["matchLabels"], service["selector"],
                             self.one("PodDisruptionBudget", name)["spec"]["selector"]["matchLabels"]):
                self.assertLessEqual(selector.items(), labels)
            self.assertLessEqual({port["targetPort"] for port in service["ports"]}, set(self.ports(name)))
            self.assertLess(self.one("PodDisruptionBudget", name)["spec"]["maxUnavailable"], deployment["replicas"])

    def test_pickers_alone_hear_what_users_write(self):
        policy = self.one("NetworkPolicy", "kaiju")["spec"]
        self.assertLessEqual(policy["podSelector"]["matchLabels"].items(), self.labels("kaiju").items())
        self.assertIn("Ingress", policy["policyTypes"])
        allowed = {rule["ports"][0]["port"]: rule.get("from") for rule in policy["ingress"]}
        self.assertEqual(set(allowed), {"http", "kv-events"})
        self.assertEqual(allowed["kv-events"], [{"podSelector": {"matchLabels": self.labels("kaiju-picker")}}])

    def test_the_route_leads_to_the_pool_the_pool_to_the_servers_and_the_picker(self):
        pool = self.one("InferencePool", "kaiju")["spec"]
        self.assertLessEqual(pool["selector"]["matchLabels"].items(), self.labels("kaiju").items())
        self.assertEqual(pool["targetPorts"], [{"number": self.ports("kaiju")["http"]}])
        picker = self.one("Service", pool["endpointPickerRef"]["name"])["spec"]
        self.assertIn(pool["endpointPickerRef"]["port"]["number"], [port["port"] for port in picker["ports"]])
        backend = self.one("HTTPRoute", "kaiju")["spec"]["rules"][0]["backendRefs"][0]
        self.assertEqual((backend["group"], backend["kind"], backend["name"]),
                         (self.one("InferencePool", "kaiju")["apiVersion"].split("/")[0], "InferencePool", "kaiju"))

    def test_the_picker_hears_what_the_servers_tell(self):
        config = yaml.safe_load(self.one("ConfigMap", "kaiju-picker")["data"]["picker.yaml"])
        plugins = {plugin.get("name", plugin["type"]): plugin.get("parameters", {}) for plugin in config["plugins"]}
        used = [plugin["pluginRef"] for profile in config["schedulingProfiles"] for plugin in profile["plugins"]]
        for source in config["dataLayer"]["sources"]:
            used += [source["pluginRef"], *(extractor["pluginRef"] for extractor in source["extractors"])]
        producer = plugins["precise-prefix-cache-producer"]
        used.append(plugins["prefix-cache-scorer"]["prefixMatchInfoProducerName"])
        self.assertEqual(set(used) - set(plugins), set())
        arguments, ports = self.arguments(), self.ports("kaiju")
        self.assertEqual(producer["tokenProcessorConfig"]["blockSize"], BLOCK)
        events = producer["kvEventsConfig"]
        self.assertEqual(events["podDiscoveryConfig"]["socketPort"], ports["kv-events"])
        self.assertTrue(arguments["--kv-events"].endswith(f":{ports['kv-events']}"))
        self.assertEqual(arguments["--kv-format"], "array")
        topic, address, model = arguments["--kv-topic"].split("@")
        self.assertTrue(arguments["--kv-topic"].startswith(events["topicFilter"]))
        self.assertEqual(address, f"$(POD_IP):{ports['http']}")
        self.assertEqual({model, arguments["--name"]}, {plugins["token-producer"]["modelName"]})
        label, value = events["podDiscoveryConfig"]["podLabelSelector"].split("=")
        self.assertEqual(self.labels("kaiju")[label], value)
        service, port = plugins["token-producer"]["vllm"]["url"].removeprefix("http://").split(":")
        self.assertIn(int(port), [one["port"] for one in self.one("Service", service)["spec"]["ports"]])


class Compose(unittest.TestCase):
    def setUp(self):
        self.path = FLEET / "compose.yaml"
        self.compose = yaml.safe_load(self.path.read_text())
        self.servers = {name: one for name, one in self.compose["services"].items() if name != "router"}

    def check(self, text):
        return subprocess.run([sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", "--default-filetype", "yaml", "-"],
                              input=text, text=True, capture_output=True).returncode

    def test_it_follows_the_schema_which_finds_wrong_fields(self):
        self.assertEqual(self.check(self.path.read_text()), 0)
        self.assertNotEqual(self.check(self.path.read_text().replace("healthcheck:", "heathcheck:")), 0)

    def test_servers_are_started_with_options_that_they_have(self):
        for server in self.servers.values():
            named = {one.partition("=")[0] for one in server["command"] if one.startswith("--")}
            self.assertEqual(named - known_options(), set())

    def test_each_server_names_the_two_others_and_reads_the_key_that_all_have(self):
        addresses = {name: f"http://{one['networks']['fleet']['ipv4_address']}:8080" for name, one in self.servers.items()}
        for name, server in self.servers.items():
            options = [one.partition("=")[::2] for one in server["command"] if one.startswith("--")]
            peers = [value for option, value in options if option == "--peer"]
            self.assertEqual(sorted(peers), sorted(address for other, address in addresses.items() if other != name))
            secret, = server["secrets"]
            self.assertIn(secret, self.compose["secrets"])
            self.assertEqual(dict(options)["--peer-key"], f"/run/secrets/{secret}")

    def test_the_bound_on_the_load_is_that_of_the_configuration_and_of_the_fleets_on_loopback(self):
        factor = self.compose["services"]["router"]["environment"]["KAIJU_BALANCE_FACTOR"]
        self.assertIn(f'hash-balance-factor "${{KAIJU_BALANCE_FACTOR-{factor}}}"', (FLEET / "haproxy.cfg").read_text())
        self.assertEqual(int(factor), BALANCE_FACTOR)

    def test_haproxy_takes_its_configuration_in_the_router_s_environment(self):
        router = self.compose["services"]["router"]
        addresses = [f"{server['networks']['fleet']['ipv4_address']}:8080" for server in self.servers.values()]
        self.assertEqual([router["environment"][f"KAIJU_SERVER_{i + 1}"] for i in range(3)], addresses)
        self.assertEqual(set(router["depends_on"]), set(self.servers))
        try:
            command = [find_haproxy(), "-c", "-q", "-f", str(FLEET / "haproxy.cfg")]
        except files.Refused:
            self.skipTest("haproxy is missing")
        done = subprocess.run(command, env={**os.environ, **router["environment"]}, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_the_health_check_tells_a_server_that_serves_from_none(self):
        port = free_ports(1)[0]
        command = self.servers["one"]["healthcheck"]["test"]
        self.assertEqual(command[0], "CMD")
        command = [part.replace("/8080", f"/{port}") for part in command[1:]]
        self.assertNotEqual(subprocess.run(command, capture_output=True, timeout=30).returncode, 0)
        server = Server(SERVER, MODEL, port=port)
        try:
            self.assertEqual(subprocess.run(command, capture_output=True, timeout=30).returncode, 0)
        finally:
            server.end()


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])

"""POST /api/definitions?plan=true: what an import would do."""

from __future__ import annotations

from tests.admin.kit import ApiThread

FILE = {
    "queues": [
        {"vhost": "/", "name": "new", "durable": True},
        {"vhost": "/", "name": "there", "durable": True, "arguments": {"x-max-length": 5}},
        {"vhost": "/", "name": "same", "durable": True},
    ],
    "policies": [{"vhost": "/", "name": "p", "pattern": "^a", "definition": {"max-length": 5}, "priority": 0}],
}


def test_a_plan_changes_nothing_and_says_what_would(own: ApiThread) -> None:
    api = own.api()
    for name in ("there", "same"):
        api.put(f"/api/queues/%2F/{name}", {"durable": True})
    api.put("/api/policies/%2F/p", {"pattern": "^b", "definition": {"max-length": 5}})
    before = api.get("/api/definitions"), api.get("/api/audit")
    reply = api("POST", "/api/definitions?plan=true", FILE)
    assert reply.status == 200
    plan = reply.json
    assert {name: plan[name] for name in ("new", "changed", "kept", "same")} == {
        "new": 1, "changed": 1, "kept": 1, "same": 1
    }  # fmt: skip
    assert plan["objects"] == [
        {"section": "policies", "object": {"vhost": "/", "name": "p"}, "fate": "changed",
         "differs": {"pattern": {"now": "^b", "file": "^a"}}},
        {"section": "queues", "object": {"vhost": "/", "name": "new"}, "fate": "new", "differs": {}},
        {"section": "queues", "object": {"vhost": "/", "name": "there"}, "fate": "kept",
         "differs": {"arguments": {"now": {}, "file": {"x-max-length": 5}}}},
    ]  # fmt: skip
    assert (api.get("/api/definitions"), api.get("/api/audit")) == before
    assert api("POST", "/api/definitions?plan=false", FILE).status == 204
    assert api.get("/api/queues/%2F/new")["durable"] is True


def test_a_plan_for_one_virtual_host_and_one_that_cannot_be(own: ApiThread) -> None:
    api = own.api()
    file = {"queues": [{"name": f"q{number}", "durable": True} for number in range(300)]}
    plan = api("POST", "/api/definitions/%2F?plan=true", file).json
    assert (plan["new"], len(plan["objects"])) == (300, 300)
    assert plan["objects"][299]["object"] == {"vhost": "/", "name": "q299"}
    wrong = api("POST", "/api/definitions?plan=true", {"queues": [{"vhost": "none", "name": "q"}]})
    assert (wrong.status, "none" in wrong.reason) == (400, True)
    user = own.add_user("user", "management", vhosts=("/",))
    assert user("POST", "/api/definitions?plan=true", file).status == 401

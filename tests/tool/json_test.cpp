// The tool's output under --json conforms to docs/json.schema.json.

#include "tool/tool.hpp"
#include <rowlock/client.hpp>
#include <rowlock/open.hpp>
#include <rowlock/semaphore.hpp>
#include <rowlock/shared_mutex.hpp>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <csignal>
#include <regex>
#include <string>

namespace {

using nlohmann::json;
using tool::arguments;

const json& schema() {
    static const json whole = json::parse(tool::contents(ROWLOCK_JSON_SCHEMA));
    return whole;
}

/// The part of JSON Schema that docs/json.schema.json uses. Any other keyword is an error.
class validator {
public:
    /// Empty if `value` fits, else what does not.
    static std::string check(const json& value, const json& rules, const std::string& at = "$") {
        if (rules.contains("$ref")) {
            const std::string name = rules["$ref"].get<std::string>().substr(8);
            return check(value, schema()["$defs"].at(name), at);
        }
        if (rules.contains("oneOf")) return check_one_of(value, rules["oneOf"], at);
        for (const auto& [word, rule] : rules.items()) {
            if (auto problem = check_word(value, word, rule, rules); !problem.empty()) {
                return at + ": " + problem;
            }
        }
        return check_parts(value, rules, at);
    }

private:
    static std::string check_one_of(const json& value, const json& choices, const std::string& at) {
        std::string problems;
        for (const auto& each : choices) {
            const auto problem = check(value, each, at);
            if (problem.empty()) return {};
            problems += problem + "; ";
        }
        return problems;
    }

    static bool has_type(const json& value, const std::string& type) {
        if (type == "object") return value.is_object();
        if (type == "array") return value.is_array();
        if (type == "string") return value.is_string();
        if (type == "integer") return value.is_number_integer();
        if (type == "boolean") return value.is_boolean();
        return type == "null" && value.is_null();
    }

    static std::string check_word(const json& value, const std::string& word, const json& rule,
                                  const json& rules) {
        if (word == "type") return has_type(value, rule) ? "" : "not of type " + rule.dump();
        if (word == "enum") {
            return std::ranges::find(rule, value) != rule.end() ? "" : "not one of " + rule.dump();
        }
        if (word == "pattern") {
            if (!value.is_string()) return "not a string";
            const bool fits =
                std::regex_search(value.get<std::string>(), std::regex{rule.get<std::string>()});
            return fits ? "" : value.dump() + " does not fit " + rule.dump();
        }
        if (word == "minimum") return value >= rule ? "" : "below " + rule.dump();
        if (word == "required") {
            for (const auto& key : rule) {
                if (!value.contains(key)) return "lacks " + key.dump();
            }
            return {};
        }
        if (word == "additionalProperties") {
            for (const auto& [key, ignored] : value.items()) {
                if (!rules["properties"].contains(key)) return "has an unknown key " + key;
            }
            return {};
        }
        const bool known = word == "properties" || word == "items" || word == "description";
        return known ? "" : "the schema's word " + word + " is not known to this test";
    }

    static std::string check_parts(const json& value, const json& rules, const std::string& at) {
        if (value.is_array()) {
            for (const auto& each : value) {
                if (auto problem = check(each, rules["items"], at + "[]"); !problem.empty()) {
                    return problem;
                }
            }
        }
        if (!value.is_object()) return {};
        for (const auto& [key, part] : value.items()) {
            if (auto problem = check(part, rules["properties"][key], at + "." + key);
                !problem.empty()) {
                return problem;
            }
        }
        return {};
    }
};

void check_fits(const std::string& text, const std::string& definition) {
    CAPTURE(definition);
    CAPTURE(text);
    REQUIRE(json::accept(text));
    CHECK(validator::check(json::parse(text), schema()["$defs"].at(definition)) == "");
    // Only ASCII.
    for (const char c : text) CHECK((c == '\n' || (c >= ' ' && c < 0x7f)));
}

json printed(const tool::tables& in, const std::string& definition, arguments command,
             int code = 0) {
    command.insert(command.begin() + 1, "--json");
    const auto got = in.run(command);
    CAPTURE(got.err);
    CHECK(got.code == code);
    CHECK(got.err == "");
    check_fits(got.out, definition);
    return json::parse(got.out);
}

json refused(const tool::answer& got, int code, const std::string& kind) {
    CHECK(got.code == code);
    CHECK(std::ranges::count(got.err, '\n') == 1);
    check_fits(got.err, "error");
    auto error = json::parse(got.err)["error"];
    CHECK(error["code"] == code);
    CHECK(error["kind"] == kind);
    return error;
}

}  // namespace

TEST_CASE("every command's JSON conforms to the schema, on every database") {
    for (const auto& in : tool::all_tables(tool::tables_wanted::none)) {
        CAPTURE(std::string{in->name()});
        CHECK(printed(*in, "migrate", {"migrate"})["steps"] == nlohmann::json{1});
        CHECK(printed(*in, "migrate --history", {"migrate", "--history", "on"})["history"] == "on");
        CHECK(printed(*in, "migrate --status", {"migrate", "--status"})["current"] == true);
        const auto lease = printed(*in, "acquire",
                                   {"acquire", "--for", "1h", "--note", "n \x1b[31m\xc3\xa9", "a"});
        tool::process waiting{tool::command_line((*in)({"acquire", "--for", "1h", "a"})),
                              in->in_environment()};
        REQUIRE(tool::eventually([&] {
            return printed(*in, "show", {"show", "a"})["queue"].size() == 1;
        }));
        CHECK(printed(*in, "ls", {"ls"})["locks"].size() == 1);
        CHECK(printed(*in, "show", {"show", "a"})["holder"]["grant_id"] == lease["grant_id"]);
        CHECK(printed(*in, "show", {"show", "a"})["blocking"].empty());
        CHECK(printed(*in, "waits", {"waits"})["locks"][0]["queue"].size() == 1);
        refused(in->run({"show", "--json", "b"}), 1, "no");
        REQUIRE(in->run({"run", "--once", "d1", "--at-least", "1h", "p", "--", "true"}).code == 0);
        const auto run = printed(*in, "show", {"show", "p"})["run"];
        CHECK(run["period"] == "d1");
        CHECK(run["finished"] == true);
        CHECK(run["rest_ms"] > 3'000'000);
        CHECK(printed(*in, "policy", {"policy", "a"})["max_hold_ms"].is_null());
        CHECK_FALSE(printed(*in, "show", {"show", "a"}).contains("max_hold_ms"));
        CHECK(printed(*in, "policy", {"policy", "a", "--max-hold", "2h"})["max_hold_ms"] ==
              7'200'000);
        CHECK(printed(*in, "show", {"show", "a"})["max_hold_ms"] == 7'200'000);
        CHECK(printed(*in, "policy", {"policy", "a", "--no-max-hold"})["max_hold_ms"].is_null());
        CHECK(printed(*in, "held", {"held", "a"})["held"] == true);
        CHECK(printed(*in, "held", {"held", "b"}, 1)["held"] == false);
        CHECK(printed(*in, "observe", {"observe", "--once", "a"})["leader"]["pid"].is_number());
        CHECK(printed(*in, "observe", {"observe", "--once", "b"}, 1)["leader"].is_null());
        CHECK(printed(*in, "doctor", {"doctor"})["ok"] == true);
        CHECK(printed(*in, "renew",
                      {"renew", "--for", "2h", "a", lease["grant_id"]})["expires_in_ms"] >
              7'000'000);
        CHECK(printed(*in, "release", {"release", "a", lease["grant_id"]})["released"] == true);
        CHECK(waiting.wait() == 0);
        printed(*in, "break", {"break", "--now", "--yes", "a"});
        printed(*in, "break", {"break", "--now", "--yes", "a"});
        CHECK(printed(*in, "history", {"history"})["records"].size() >= 5);
        const auto of_counters = [&](const std::string& group, const std::string& which,
                                     const arguments& rest) {
            arguments command{group, which};
            command.insert(command.end(), rest.begin(), rest.end());
            command.emplace_back("--json");
            const auto got = in->run(command);
            CAPTURE(got.err);
            CHECK(got.code == 0);
            check_fits(got.out, group + " " + which);
            return json::parse(got.out);
        };
        CHECK(of_counters("semaphore", "set", {"api", "3"})["available"] == 3);
        {
            rowlock::client locks{rowlock::open(in->url()).with_tables({.prefix = in->prefix()})};
            rowlock::semaphore api{locks, "api"};
            const auto held = api.acquire(2, {.note = "n \x1b[31m"});
            const auto shown = of_counters("semaphore", "show", {"api"});
            CHECK(shown["used"] == 2);
            CHECK(shown["holders"][0]["permits"] == 2);
            rowlock::shared_mutex page{locks, "page"};
            const auto reading = page.acquire(rowlock::lock_mode::shared);
            const auto read = of_counters("shared", "show", {"page"});
            CHECK(read["shared"] == 1);
            CHECK(read["holders"][0]["mode"] == "shared");
            CHECK(printed(*in, "show", {"show", "api"})["semaphore"]["holders"].size() == 1);
            CHECK(printed(*in, "show", {"show", "page"})["shared_mutex"]["shared"] == 1);
            const auto all = printed(*in, "ls", {"ls"});
            CHECK(all["semaphores"][0]["used"] == 2);
            CHECK(all["shared_mutexes"][0]["shared"] == 1);
            CHECK(of_counters("shared", "ls", {})["shared_mutexes"].size() == 1);
            CHECK(printed(*in, "history", {"history", "page"})["records"].back()["mode"] ==
                  "shared");
            CHECK(printed(*in, "history", {"history", "api"})["records"].back()["permits"] == 2);
        }
        CHECK(printed(*in, "ls", {"ls"})["semaphores"].empty());
        CHECK(of_counters("semaphore", "ls", {})["semaphores"].size() == 1);
        CHECK(of_counters("shared", "ls", {})["shared_mutexes"].empty());  // it is free
        printed(*in, "reap", {"reap"});
        printed(*in, "migrate --history", {"migrate", "--history", "drop", "--yes"});
        CHECK(printed(*in, "migrate", {"migrate", "--down-to", "0", "--yes"})["direction"] ==
              "down");
    }
    check_fits(tool::rowlock({"version", "--json"}).out, "version");
}

TEST_CASE("ls under --json reports on standard output whether there is more") {
    const auto in = tool::sqlite_tables();
    for (const char* name : {"a", "b"}) {
        REQUIRE(in->run({"acquire", "--for", "1h", name}).code == 0);
    }
    CHECK(printed(*in, "ls", {"ls"})["more"] == false);
    CHECK(printed(*in, "ls", {"ls", "--limit", "1"})["more"] == true);
}

TEST_CASE("ls and show say that a lease has expired, with and without --json") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        rowlock::client locks{in->source(), {}};
        const auto held = locks.acquire("a");  // until its session expires
        REQUIRE(in->run({"acquire", "--for", "3h", "b"}).code == 0);
        in->let_pass(std::chrono::hours{2});
        CHECK(printed(*in, "show", {"show", "a"})["state"] == "expired");
        CHECK(printed(*in, "ls", {"ls"})["locks"][0]["state"] == "expired");
        CHECK(in->run({"ls"}).out.find("expired") != std::string::npos);
        CHECK(printed(*in, "show", {"show", "b"})["state"] == "held");
        CHECK(in->run({"show", "b"}).out.find("expired") == std::string::npos);
    }
}

TEST_CASE("an id beyond 2^53 is exact in a reader that stores numbers as doubles") {
    const auto in = tool::sqlite_tables();
    const auto lease = printed(*in, "acquire", {"acquire", "--for", "1h", "a"});
    for (const char* key : {"token", "grant_id"}) {
        CAPTURE(std::string{key});
        CHECK(lease[key].is_string());
    }
    const auto holder = printed(*in, "show", {"show", "a"})["holder"];
    CHECK(holder["session"].is_string());
    CHECK(holder["grant_id"].is_string());
}

TEST_CASE("errors under --json are one JSON object on standard error, and name their kind") {
    const auto in = tool::sqlite_tables();
    REQUIRE(in->run({"acquire", "--for", "1h", "a"}).code == 0);
    const arguments busy{"acquire", "--json", "--for", "1h", "-n", "a"};
    CHECK(refused(in->run(busy), 75, "busy")["message"].get<std::string>().find("held") !=
          std::string::npos);
    arguments chosen = busy;
    chosen.insert(chosen.begin() + 1, {"--busy-exit-code", "9"});
    refused(in->run(chosen), 9, "busy");
    refused(in->run({"ls", "--json", "--no-such-option"}), 64, "usage");
    refused(in->run({"show", "--json", "a\nb\x1b[31m"}), 64, "usage");
    refused(in->run({"break", "--json", "a"}), 64, "usage");
    const auto not_ours = in->run({"release", "--json", "a", "12"});
    refused(not_ours, 1, "no");
    check_fits(not_ours.out, "release");
    refused(tool::rowlock({"ls", "--json"}), 78, "misconfigured");
    refused(tool::rowlock({"ls", "--json", "--url", "postgresql://me@127.0.0.1:1/d"}), 69,
            "unreachable");

    tool::process waiting{tool::command_line((*in)({"acquire", "--json", "--for", "1h", "a"})),
                          in->in_environment()};
    REQUIRE(tool::eventually([&] {
        return printed(*in, "show", {"show", "a"})["queue"].size() == 1;
    }));
    waiting.send(SIGTERM);
    CHECK(waiting.wait() == 128 + SIGTERM);
    CHECK(json::parse(waiting.err())["error"]["kind"] == "signal");
}

TEST_CASE("the schema's checker finds errors (control)") {
    const auto& rules = schema()["$defs"]["acquire"];
    json fits{{"name", "a"}, {"token", "1"}, {"grant_id", "2"}, {"expires_in_ms", 3}};
    CHECK(validator::check(fits, rules) == "");
    json number = fits;
    number["token"] = 1;
    CHECK(validator::check(number, rules) != "");
    json more = fits;
    more["x"] = 1;
    CHECK(validator::check(more, rules) != "");
    fits.erase("name");
    CHECK(validator::check(fits, rules) != "");
}

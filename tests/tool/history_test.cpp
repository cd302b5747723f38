// The history of a lock, as the tool shows it.

#include "tool/tool.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <regex>
#include <string>

namespace {

using nlohmann::json;

tool::answer good(const tool::tables& in, const tool::arguments& command) {
    auto got = in.run(command);
    CAPTURE(got.err);
    REQUIRE(got.code == 0);
    return got;
}

}  // namespace

TEST_CASE("a history is switched on, shown and removed") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(in->name());
        const auto none = in->run({"history"});
        CHECK(none.code != 0);
        CHECK(none.err.find("rowlock migrate --history on") != std::string::npos);
        CHECK(good(*in, {"migrate", "--history", "on"}).out == "history on\n");
        CHECK(good(*in, {"migrate", "--status"}).out.find("history on") != std::string::npos);
        CHECK(good(*in, {"history"}).out.starts_with("nothing is recorded in "));
        good(*in, {"run", "--note", "a \x1b[2J note", "job", "--", "true"});
        good(*in, {"acquire", "--for", "1h", "other"});
        good(*in, {"break", "--now", "--yes", "other"});

        const auto text = good(*in, {"history", "job"}).out;
        CHECK(text.find("released") != std::string::npos);
        CHECK(good(*in, {"history", "job", "--records"}).out.find("granted") != std::string::npos);
        CHECK(text.find("other") == std::string::npos);
        CHECK(text.find('\x1b') == std::string::npos);  // no control sequence reaches the terminal
        CHECK(text.find("a \\x1b[2J note") != std::string::npos);

        // Who, for how long, and by whom it was broken.
        const auto lines = [](const std::string& shown, const std::string& wanted) {
            return std::regex_search(shown, std::regex{wanted});
        };
        CHECK(
            lines(text, R"([\d:.]+ +[\dms.]+ +job +- +1 +rowlock run true\[\d+\]@\S+ +released)"));
        const auto other = good(*in, {"history", "other"}).out;
        CHECK(lines(other, R"([\dms.]+ +other +- +1 +rowlock acquire\[\d+\]@\S+ )"
                           R"(+broken by rowlock break of \S+, pid \d+ on )"));

        const auto raw = good(*in, {"history", "--json", "--since", "1h"}).out;
        CHECK(raw.find('\x1b') == std::string::npos);
        const auto all = json::parse(raw)["records"];
        REQUIRE(all.size() == 7);
        CHECK(all[0]["kind"] == "session_opened");
        CHECK(all[1]["kind"] == "granted");
        CHECK(all[1]["name"] == "job");
        CHECK(all[1]["token"] == "1");
        CHECK(all[1]["program"].get<std::string>().starts_with("rowlock run"));
        CHECK(all[6]["kind"] == "forced");
        CHECK(json::parse(good(*in, {"history", "--json", "--limit", "2"}).out)["records"].size() ==
              2);

        const auto reaped =
            json::parse(good(*in, {"reap", "--json", "--history-retention", "1ms"}).out);
        CHECK(reaped["history_deleted"] == 7);
        CHECK(good(*in, {"migrate", "--history", "off"}).out == "history stopped\n");
        const auto refused = in->run({"migrate", "--history", "drop"});
        CHECK(refused.code == 64);
        CHECK(good(*in, {"migrate", "--history", "drop", "--yes"}).out == "history absent\n");
    }
}

TEST_CASE("the history says who broke a hold of permits") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(in->name());
        good(*in, {"migrate", "--history", "on"});
        good(*in, {"acquire", "--for", "1h", "--limit", "2", "limited"});
        good(*in, {"acquire", "--for", "1h", "--shared", "page"});
        for (const std::string name : {"limited", "page"}) {
            CAPTURE(name);
            good(*in, {"break", "--now", "--yes", name});
            const auto text = good(*in, {"history", name}).out;
            CHECK(
                std::regex_search(text, std::regex{"broken by rowlock break of .*, pid \\d+ on "}));
        }
    }
}

TEST_CASE("the history shows a hand-over as the end of a hold, and who asked for it and why") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(in->name());
        good(*in, {"migrate", "--history", "on"});
        const auto got = json::parse(good(*in, {"acquire", "--for", "1h", "--json", "a"}).out);
        const tool::process next{tool::command_line((*in)({"run", "a", "--", "sleep", "60"})),
                                 in->in_environment()};
        REQUIRE(in->queue_becomes(1, "a"));
        // It has no process that could stop: the request is recorded.
        CHECK(in->run({"break", "--within", "10m", "--reason", "a deploy", "--yes", "a"}).code ==
              75);
        good(*in, {"release", "a", got["grant_id"]});
        REQUIRE(tool::eventually([&] {
            const auto shown = json::parse(good(*in, {"show", "--json", "a"}).out).dump();
            return shown.find("rowlock run sleep") != std::string::npos &&
                   json::parse(good(*in, {"history", "--json", "a"}).out)["holds"].size() == 2;
        }));
        const auto holds = json::parse(good(*in, {"history", "--json", "a"}).out)["holds"];
        CHECK(holds[0]["ended"] == "handed_over");
        CHECK(holds[0]["to"] == holds[1]["from"]);
        REQUIRE(holds[0]["asked"].size() == 1);
        CHECK(holds[0]["asked"][0]["reason"] == "a deploy");
        CHECK(holds[0]["asked"][0]["by"].get<std::string>().starts_with("rowlock break of "));
        CHECK(holds[0]["asked"][0].contains("until"));
        CHECK(holds[1]["ended"] == "held");
        CHECK(holds[1].contains("waited_ms"));
        const auto text = good(*in, {"history", "a"}).out;
        CHECK(text.find("handed over; asked for by rowlock break of ") != std::string::npos);
        CHECK(text.find("still held", text.find("still held") + 1) == std::string::npos);
    }
}

TEST_CASE("the history records a renewal, of a longer or a shorter time") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(in->name());
        good(*in, {"migrate", "--history", "on"});
        const auto got = json::parse(good(*in, {"acquire", "--for", "1h", "--json", "a"}).out);
        for (const char* time : {"2h", "5m"}) {
            CAPTURE(std::string{time});
            const auto renewed = json::parse(
                good(*in, {"renew", "--for", time, "--json", "a", got["grant_id"]}).out);
            const auto all = json::parse(good(*in, {"history", "--json", "a"}).out)["records"];
            CHECK(all.back()["kind"] == "renewed");
            CHECK(all.back()["token"] == renewed["token"]);
        }
    }
}

TEST_CASE("the doctor reports a history that is on or stopped") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(in->name());
        const auto said = [&]() -> std::string {
            const auto told = json::parse(in->run({"doctor", "--json"}).out);
            for (const auto& each : told["checks"]) {
                if (each["check"] == "history") return each["verdict"];
            }
            return "nothing";
        };
        CHECK(said() == "nothing");
        good(*in, {"migrate", "--history", "on"});
        CHECK(said() == "ok");
        good(*in, {"migrate", "--history", "off"});
        CHECK(said() == "warn");
    }
}

TEST_CASE("the history's SQL is printed for a DBA") {
    for (const std::string dialect : {"postgresql", "mysql", "sqlite"}) {
        const auto printed = tool::rowlock(
            {"migrate", "--print", "--history", "on", "--dialect", dialect, "--prefix", "shop_"});
        CHECK(printed.code == 0);
        CHECK(printed.out.find("create table if not exists shop_history") != std::string::npos);
        CHECK(printed.out.find("rowlock_history ") == std::string::npos);
    }
    CHECK(tool::rowlock({"migrate", "--print", "--history", "off", "--dialect", "sqlite"}).code ==
          64);
    CHECK(tool::rowlock({"migrate", "--history", "perhaps"}).code == 64);
}

// sql::forwarding_connection: nothing of the inner connection is lost behind it.

#include "sql/changed_settings.hpp"
#include "sql/connection_memory.hpp"
#include "support/failure.hpp"
#include <rowlock/error.hpp>
#include <rowlock/sql/forwarding_connection.hpp>
#include <rowlock/sql/notifications.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <regex>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using namespace rowlock;
using namespace std::chrono_literals;
using support::kind_of;

namespace {

const sql::deadline due = sql::deadline{} + 1h;

class silent final : public sql::notifications {
public:
    void listen(std::string_view /*channel*/, sql::deadline /*until*/) override {}
    [[nodiscard]] int descriptor() const noexcept override { return 8; }
    [[nodiscard]] std::vector<sql::notification> take() override { return {}; }
};

/// What an object of recorded_connection was asked, and sent.
struct record {
    std::vector<std::string> calls;
    std::vector<std::string> texts;
    std::set<sql::deadline> deadlines;

    [[nodiscard]] std::set<std::string> functions() const { return {calls.begin(), calls.end()}; }
};

/// Records the name of each virtual function that is called, and answers what no default does.
class recorded_connection final : public sql::connection {
public:
    explicit recorded_connection(record& in) : in_{in} {}
    ~recorded_connection() override { put_settings_back(); }

    [[nodiscard]] sql::dialect speaks() const noexcept override {
        in_.calls.emplace_back("speaks");
        return sql::dialect::mysql;
    }
    sql::result execute(const sql::statement& what, std::span<const sql::value> parameters,
                        sql::deadline until) override {
        return answer("execute", what.text(), parameters.size(), until);
    }
    sql::result query(std::string_view text, sql::deadline until) override {
        return answer("query", text, 0, until);
    }
    std::optional<bool> transact(std::span<const sql::step> steps, std::string_view afterwards,
                                 sql::deadline until) override {
        answer("transact", afterwards, steps.size(), until);
        return true;
    }
    bool post(const sql::statement& what, std::span<const sql::value> parameters,
              sql::deadline until, sql::posted_answer told) override {
        const auto done = answer("post", what.text(), parameters.size(), until);
        told(&done, nullptr);
        return true;
    }
    [[nodiscard]] bool alive() const noexcept override {
        in_.calls.emplace_back("alive");
        return true;
    }
    void discard() noexcept override {
        in_.calls.emplace_back("discard");
        connection::discard();
    }
    [[nodiscard]] bool discarded() const noexcept override {
        in_.calls.emplace_back("discarded");
        return connection::discarded();
    }
    [[nodiscard]] bool keeps_session_state() const noexcept override {
        in_.calls.emplace_back("keeps_session_state");
        return false;
    }
    [[nodiscard]] sql::transaction_state transaction() const noexcept override {
        in_.calls.emplace_back("transaction");
        return sql::transaction_state::failed;
    }
    [[nodiscard]] int socket() const noexcept override {
        in_.calls.emplace_back("socket");
        return 7;
    }
    [[nodiscard]] sql::notifications* notifications() noexcept override {
        in_.calls.emplace_back("notifications");
        return &capability_;
    }
    [[nodiscard]] std::int64_t announced_process() const noexcept override {
        in_.calls.emplace_back("announced_process");
        return 4711;
    }
    [[nodiscard]] std::uint64_t round_trips() const noexcept override {
        in_.calls.emplace_back("round_trips");
        return 12;
    }

    /// As a driver does that finds a standby at the other end.
    void find_standby() { discard(); }

private:
    /// One row: how many parameters or steps there were.
    sql::result answer(const char* function, std::string_view text, std::size_t count,
                       sql::deadline until) {
        in_.calls.emplace_back(function);
        in_.texts.emplace_back(text);
        in_.deadlines.insert(until);
        sql::result row{1};
        row.append_integer(static_cast<std::int64_t>(count));
        return row;
    }

    record& in_;
    silent capability_;
};

/// Calls every virtual function, and checks that the answer is that of a recorded_connection.
void call_everything(sql::connection& db) {
    const sql::statement what{"a statement"};
    const std::vector<sql::value> parameters{1, 2, 3};
    const std::vector<sql::step> steps{{what, parameters}, {what, {}}};
    CHECK(db.speaks() == sql::dialect::mysql);
    CHECK(db.execute(what, parameters, due).integer(0, 0) == 3);
    CHECK(db.query("a query", due).rows() == 1);
    CHECK(db.transact(steps, "afterwards", due) == true);
    bool answered = false;
    CHECK(db.post(what, parameters, due, [&](const sql::result* done, const error* failure) {
        answered = done != nullptr && failure == nullptr;
    }));
    CHECK(answered);
    CHECK(db.alive());
    CHECK_FALSE(db.keeps_session_state());
    CHECK(db.transaction() == sql::transaction_state::failed);
    CHECK(db.socket() == 7);
    REQUIRE(db.notifications() != nullptr);
    CHECK(db.notifications()->descriptor() == 8);
    CHECK(db.announced_process() == 4711);
    CHECK(db.round_trips() == 12);
    CHECK_FALSE(db.discarded());
    db.discard();
    CHECK(db.discarded());
}

/// The names of the virtual functions of sql::connection, from its header.
std::set<std::string> virtual_functions() {
    std::ifstream header{ROWLOCK_SOURCE_DIR "/include/rowlock/sql/connection.hpp"};
    std::string text(std::istreambuf_iterator<char>{header}, {});
    text = std::regex_replace(text, std::regex{"//[^\n]*"}, "");
    const auto begin = text.find("\nclass connection {");
    const auto end = text.find("\nclass connection_source {");
    REQUIRE(begin != std::string::npos);
    REQUIRE(end != std::string::npos);
    text = text.substr(begin, end - begin);
    const std::regex declaration{R"(\bvirtual\s[^();]*?(~?\w+)\()"};
    std::set<std::string> names;
    for (std::sregex_iterator each{text.begin(), text.end(), declaration}, none; each != none;
         ++each) {
        names.insert((*each)[1].str());
    }
    names.erase("~connection");
    return names;
}

class derived final : public sql::forwarding_connection {
public:
    using forwarding_connection::forwarding_connection;

    sql::result query(std::string_view text, sql::deadline until) override {
        return inner().query(std::string{text} + ", changed", until);
    }
};

}  // namespace

TEST_CASE("a forwarding connection forwards every virtual function of sql::connection") {
    const auto declared = virtual_functions();
    CHECK(declared.size() >= 14);
    CHECK(declared.contains("post"));
    record in;
    SUBCASE("to a connection that it owns") {
        sql::forwarding_connection db{std::make_unique<recorded_connection>(in)};
        call_everything(db);
        CHECK(in.functions() == declared);
    }
    SUBCASE("to a connection of the caller's") {
        recorded_connection mine{in};
        {
            sql::forwarding_connection db{mine};
            call_everything(db);
            CHECK(in.functions() == declared);
        }
        CHECK(mine.discarded());
    }
    SUBCASE("control: the connection itself records them all") {
        recorded_connection db{in};
        call_everything(db);
        CHECK(in.functions() == declared);
    }
    CHECK(in.deadlines == std::set{due});
    CHECK(in.texts ==
          std::vector<std::string>{"a statement", "a query", "afterwards", "a statement"});
}

TEST_CASE("what a derived connection does not override goes on to the inner one") {
    record in;
    derived db{std::make_unique<recorded_connection>(in)};
    static_cast<void>(db.query("a query", due));
    static_cast<void>(db.execute(sql::statement{"a statement"}, {}, due));
    CHECK(in.texts == std::vector<std::string>{"a query, changed", "a statement"});
}

TEST_CASE("a driver that discards its connection discards the forwarding one") {
    record in;
    auto made = std::make_unique<recorded_connection>(in);
    auto& inner = *made;
    const sql::forwarding_connection db{std::move(made)};
    CHECK_FALSE(db.discarded());
    inner.find_standby();
    CHECK(db.discarded());
}

TEST_CASE("what is learnt of a connection through a forwarding one is known of the inner one") {
    record in;
    recorded_connection inner{in};
    sql::memory_of(inner).server = "known before";
    sql::forwarding_connection db{inner};
    CHECK(sql::memory_of(db).server == "known before");
    sql::memory_of(db).server = "learnt since";
    CHECK(sql::memory_of(inner).server == "learnt since");
}

TEST_CASE("a setting that was changed through a forwarding connection is restored") {
    record in;
    {
        recorded_connection borrowed{in};
        sql::memory_of(borrowed).facts = sql::server_facts{.mariadb = true};
        sql::forwarding_connection db{borrowed};
        sql::limit_idle_time(db, 30s, due);
        REQUIRE(in.texts.size() == 2);
        CHECK(in.texts.back() == "set session idle_transaction_timeout = 30");
    }
    REQUIRE(in.texts.size() == 3);
    CHECK(in.texts.back().starts_with("set session idle_transaction_timeout = if("));
}

TEST_CASE("a forwarding connection without a connection to forward to is refused") {
    CHECK(kind_of([] {
              const sql::forwarding_connection db{std::unique_ptr<sql::connection>{}};
          }) == errc::invalid_options);
}

TEST_CASE("a wrapped source passes each connection of another one through a function") {
    record in;
    const sql::connection_source source{
        sql::dialect::mysql,
        [&](sql::deadline /*until*/) { return std::make_unique<recorded_connection>(in); },
        "the database"};
    const auto wrapped =
        source.wrapped([](auto inner) { return std::make_unique<derived>(std::move(inner)); });
    CHECK(wrapped.speaks() == sql::dialect::mysql);
    CHECK(wrapped.description() == "the database");
    const auto passed = [](auto inner) { return inner; };
    CHECK(source.with_tables({.prefix = "shop_"}).wrapped(passed).tables().prefix == "shop_");
    CHECK(source.wrapped(passed).with_tables({.prefix = "shop_"}).tables().prefix == "shop_");
    static_cast<void>(wrapped.connect(due)->query("a query", due));
    static_cast<void>(source.connect(due)->query("a query", due));  // the source is as it was
    CHECK(in.texts == std::vector<std::string>{"a query, changed", "a query"});

    const auto emptied =
        source.wrapped([](auto /*inner*/) { return std::unique_ptr<sql::connection>{}; });
    CHECK(kind_of([&] { (void)emptied.connect(due); }) == errc::database_unreachable);
    CHECK(kind_of([&] { (void)source.wrapped({}); }) == errc::invalid_options);
}

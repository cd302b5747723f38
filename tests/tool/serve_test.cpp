// `rowlock serve`: what it says, to whom, and what it does for whom. tests/tool/page_test.cpp has a
// browser's view.

#include "tool/open_transaction.hpp"
#include "tool/serving.hpp"
#include "tool/tool.hpp"
#include "tool/watcher.hpp"
#include <rowlock/open.hpp>
#include <rowlock/rowlock.hpp>

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <csignal>
#include <fstream>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

using namespace rowlock;
using namespace std::chrono_literals;
using nlohmann::json;

namespace {

client_options with_owner(const std::string& owner) {
    return {.deadlock_detection = deadlock_detection::off, .owner = owner};
}

sql::connection_source source_of(const tool::tables& in) {
    return rowlock::open(in.url()).with_tables({.prefix = in.prefix()});
}

/// The lock of that key; null if it is not there.
json lock_in(const json& said, const std::string& key) {
    for (const auto& each : said.at("locks")) {
        if (each.at("key") == key) return each;
    }
    return nullptr;
}

/// A thread that waits for a lease until it is destroyed.
std::jthread waiter_of(client& locks, const std::string& name) {
    const auto before = locks.stats().queued;
    std::jthread made{[&locks, name](const std::stop_token& stop) {
        static_cast<void>(locks.acquire(name, stop));
    }};
    REQUIRE(tool::eventually([&] { return locks.stats().queued > before; }));
    return made;
}

/// What the server answers to a request.
struct request {
    std::string path = "/api/locks";
    httplib::Headers headers{};
    std::string body{};  ///< POST, if it is not empty
    std::string type = "application/json";

    [[nodiscard]] int status(const tool::serving& at) const {
        if (body.empty()) return at.answer(path, headers).status;
        auto http = at.http();
        const auto got = http.Post(path, headers, body, type);
        REQUIRE(got);
        return got->status;
    }
};

json break_of(const std::string& name, const lease& held, const std::string& how = "stop") {
    return {{"name", name},
            {"kind", "lease"},
            {"token", std::to_string(held.token().value())},
            {"how", how}};
}

json post_break(const tool::serving& at, const tool::token_file& with, const json& order) {
    auto http = at.http();
    const auto got = http.Post("/api/break", with.header(), order.dump(), "application/json");
    REQUIRE(got);
    return json::parse(got->body);
}

struct raw_kind {
    const char* from = "127.0.0.1";
    bool takes_little = false;  ///< before it is read
};

/// A connection whose bytes the test says itself.
class raw_connection {
public:
    explicit raw_connection(const tool::serving& at, raw_kind how = {})
        : socket_{socket(AF_INET, SOCK_STREAM, 0)} {
        if (how.takes_little) {
            const int buffer = 2048;
            const int segment = 536;  // by which the server's side sizes its own buffer
            setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer);
            setsockopt(socket_, IPPROTO_TCP, TCP_MAXSEG, &segment, sizeof segment);
        }
        const auto self = address(how.from, 0);
        const auto to = address("127.0.0.1", at.port());
        REQUIRE(bind(socket_, reinterpret_cast<const sockaddr*>(&self), sizeof self) == 0);
        REQUIRE(connect(socket_, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0);
    }
    ~raw_connection() { close(socket_); }
    raw_connection(const raw_connection&) = delete;
    raw_connection& operator=(const raw_connection&) = delete;

    /// Says no more, and still listens.
    void end_saying() const { REQUIRE(shutdown(socket_, SHUT_WR) == 0); }
    /// Whether the server has said something, or has closed it.
    [[nodiscard]] bool is_heard() const {
        pollfd watched{socket_, POLLIN, 0};
        return poll(&watched, 1, 0) > 0;
    }
    /// Returns false once the server has closed it.
    bool say(
        const std::string& text) {  // NOLINT(readability-make-member-function-const): it writes
        return send(socket_, text.data(), text.size(), MSG_NOSIGNAL) ==
               static_cast<ssize_t>(text.size());
    }
    /// The next bytes, up to so many.
    [[nodiscard]] std::string hear_some(std::size_t most) const {
        std::string text(most, ' ');
        const auto count = recv(socket_, text.data(), most, 0);
        text.resize(static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
        return text;
    }
    /// All that the server says, to the end.
    [[nodiscard]] std::string hear() const {
        std::string all;
        std::array<char, 4096> part{};
        for (;;) {
            const auto count = recv(socket_, part.data(), part.size(), 0);
            if (count <= 0) return all;
            all.append(part.data(), static_cast<std::size_t>(count));
        }
    }

private:
    static sockaddr_in address(const char* host, int port) {
        sockaddr_in made{};
        made.sin_family = AF_INET;
        made.sin_port = htons(static_cast<std::uint16_t>(port));
        inet_pton(AF_INET, host, &made.sin_addr);
        return made;
    }

    int socket_;
};

using connections = std::vector<std::unique_ptr<raw_connection>>;

/// So many that say this and then nothing.
connections open_connections(const tool::serving& at, int count, const std::string& text,
                             raw_kind how = {}) {
    connections made;
    for (int i = 0; i < count; ++i) {
        made.push_back(std::make_unique<raw_connection>(at, how));
        made.back()->say(text);
    }
    return made;
}

/// Clients that do a little now and then.
class slow_clients {
public:
    slow_clients(connections all, std::function<void(raw_connection&)> little)
        : all_{std::move(all)},
          thread_{[this, little = std::move(little)](const std::stop_token& stop) {
              while (!stop.stop_requested()) {
                  for (const auto& each : all_) little(*each);
                  std::this_thread::sleep_for(20ms);
              }
          }} {}

private:
    connections all_;
    std::jthread thread_;
};

/// Asks for the page and the metrics while others let the server wait. A request that waits for
/// them takes five seconds and more, and otherwise milliseconds.
void check_answered_at_once(const tool::serving& at, const httplib::Headers& with = {}) {
    const auto begin = std::chrono::steady_clock::now();
    for (const char* path : {"/", "/metrics"}) {
        const auto got = at.http().Get(path, with);
        REQUIRE(got);
        CHECK(got->status == 200);
    }
    CHECK(std::chrono::steady_clock::now() - begin < 3s);
}

/// Reads a stream of events on a thread of its own.
class listener {
public:
    explicit listener(const tool::serving& at)
        : http_{at.http()}, thread_{[this] {
              http_.Get("/api/events", [this](const char* data, std::size_t size) {
                  const std::lock_guard lock{mutex_};
                  text_.append(data, size);
                  return !done_;
              });
          }} {}
    ~listener() {
        {
            const std::lock_guard lock{mutex_};
            done_ = true;
        }
        http_.stop();
    }
    listener(const listener&) = delete;
    listener& operator=(const listener&) = delete;

    [[nodiscard]] std::vector<json> events() {
        const std::lock_guard lock{mutex_};
        std::vector<json> all;
        for (std::size_t begin = 0;;) {
            const auto end = text_.find("\n\n", begin);
            if (end == std::string::npos) return all;
            const auto event = text_.substr(begin, end - begin);
            if (event.starts_with("data: ")) all.push_back(json::parse(event.substr(6)));
            begin = end + 2;
        }
    }
    [[nodiscard]] bool has(const std::function<bool(const json&)>& wanted) {
        return tool::eventually([&] { return std::ranges::any_of(events(), wanted); });
    }

private:
    httplib::Client http_;
    std::mutex mutex_;
    std::string text_;
    bool done_ = false;
    std::jthread thread_;
};

}  // namespace

TEST_CASE("serve says who holds and waits for every kind of lock") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        client holder{source_of(*in), with_owner("holder")};
        client waiter{source_of(*in), with_owner("waiter")};
        const auto held = holder.acquire("nightly", {.note = "of today"});
        static_cast<void>(holder.acquire("free"));
        semaphore limit{holder, "limit"};
        limit.create(5);
        const auto two = limit.acquire(2);
        auto upgraded = shared_mutex{holder, "page"}.acquire(lock_mode::upgradeable);
        upgraded.upgrade();
        const auto waits = waiter_of(waiter, "nightly");

        const tool::serving at{*in};
        const auto said = at.locks();
        CHECK(said.at("more") == false);
        CHECK(said.at("only_leases") == false);
        CHECK(said.at("locks").size() == 3);
        const auto nightly = lock_in(said, "lease:nightly");
        CHECK(nightly.at("held") == 1);
        CHECK(nightly.at("holders")[0].at("owner") == "holder");
        CHECK(nightly.at("holders")[0].at("note") == "of today");
        CHECK(nightly.at("holders")[0].at("token") == std::to_string(held.token().value()));
        CHECK(nightly.at("queue")[0].at("owner") == "waiter");
        CHECK(nightly.at("waiting_since") >= nightly.at("since"));
        CHECK(said.at("at") >= nightly.at("waiting_since"));
        const auto permits = lock_in(said, "semaphore:limit");
        CHECK(permits.at("capacity") == 5);
        CHECK(permits.at("used") == 2);
        CHECK(permits.at("holders")[0].at("permits") == 2);
        const auto page = lock_in(said, "shared_mutex:page");
        CHECK(page.at("held") == 1);  // two rows, one hold
        CHECK(page.at("holders")[0].at("mode") == "exclusive");
        CHECK(page.at("holders")[0].at("token") == std::to_string(upgraded.token().value()));
        CHECK(at.get("/api/lock?kind=lease&name=nightly") == nightly);
        CHECK(request{.path = "/api/lock?kind=lease&name=free"}.status(at) == 404);
        const auto sessions = at.get("/api/sessions");
        CHECK(sessions.at("sessions").size() == 2);
        CHECK(sessions.at("sessions")[0].at("expires") > sessions.at("at"));
        CHECK(at.get("/api/about").at("breaks") == false);
    }
}

TEST_CASE("serve measures what rowlock metrics measures") {
    const auto in = tool::sqlite_tables();
    client locks{source_of(*in)};
    const auto held = locks.acquire("a");
    const tool::serving at{*in};
    const auto got = at.answer("/metrics");
    CHECK(got.get_header_value("Content-Type") == metrics::content_type);
    CHECK(got.body.find("rowlock_database_held{kind=\"lease\"} 1\n") != std::string::npos);
    const auto names = [](const std::string& text) {
        std::vector<std::string> all;
        std::istringstream lines{text};
        for (std::string line; std::getline(lines, line);) {
            if (line.starts_with("# TYPE")) all.push_back(line);
        }
        return all;
    };
    CHECK(names(got.body) == names(in->run({"metrics"}).out));
}

TEST_CASE("serve streams what changes, and no more") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        client locks{source_of(*in)};
        const auto other = locks.acquire("other");
        const tool::serving at{*in};
        listener stream{at};
        REQUIRE(stream.has([](const json& event) { return event.at("full") == true; }));
        CHECK(stream.events().front().at("locks").size() == 1);
        {
            const auto held = locks.acquire("nightly");
            CHECK(stream.has([](const json& event) {
                return event.at("full") == false && lock_in(event, "lease:nightly") != nullptr;
            }));
        }
        CHECK(stream.has(
            [](const json& event) { return event.at("removed") == json{"lease:nightly"}; }));
        const auto events = stream.events();
        CHECK(std::ranges::count_if(events, [](const json& event) {
                  return lock_in(event, "lease:other") != nullptr;
              }) == 1);
    }
}

TEST_CASE("serve shows a deadlock cycle while it lasts") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        client one{source_of(*in), with_owner("one")};
        client two{source_of(*in), with_owner("two")};
        const tool::serving at{*in};
        const auto cycles = [&] { return at.get("/api/locks").at("cycles"); };
        {
            const auto a = one.acquire("a");
            const auto b = two.acquire("b");
            // Other threads than those that hold them: no cycle.
            const auto first = waiter_of(one, "b");
            const auto second = waiter_of(two, "a");
            CHECK(cycles().empty());
        }
        std::barrier both_held{2};
        const auto cross = [&](client& locks, const std::string& holds, const std::string& wants) {
            return std::jthread{[&locks, &both_held, holds, wants](const std::stop_token& stop) {
                const auto held = locks.acquire(holds);
                both_held.arrive_and_wait();
                static_cast<void>(locks.acquire(wants, stop));
            }};
        };
        std::jthread first = cross(one, "c", "d");
        const std::jthread second = cross(two, "d", "c");
        REQUIRE(tool::eventually([&] { return cycles().size() == 1; }));
        const auto said = at.get("/api/locks");
        const auto cycle = said.at("cycles")[0];
        CHECK(cycle.at("text").get<std::string>().find("c (held by ") != std::string::npos);
        const std::set<json> entries(cycle.at("entries").begin(), cycle.at("entries").end());
        CHECK(entries == std::set<json>{lock_in(said, "lease:c").at("queue")[0].at("grant_id"),
                                        lock_in(said, "lease:d").at("queue")[0].at("grant_id")});
        first.request_stop();
        CHECK(tool::eventually([&] { return cycles().empty(); }));
    }
}

TEST_CASE("serve reads all of ten thousand locks, and no other than the first holders of each") {
    const auto in = tool::sqlite_tables();
    client locks{source_of(*in)};
    const auto held = locks.acquire("first");
    tool::add_leases_of_first(*in);
    semaphore limit{locks, "limit"};
    limit.create(50);
    std::vector<permits> all;
    for (int i = 0; i < 30; ++i) all.push_back(limit.acquire());
    const tool::serving at{*in};
    const auto said = at.get("/api/locks");
    CHECK(said.at("locks").size() == 10'001);
    CHECK(lock_in(said, "semaphore:limit").at("held") == 30);
    CHECK(lock_in(said, "semaphore:limit").at("holders").size() == 20);
    CHECK(at.get("/api/lock?kind=semaphore&name=limit").at("holders").size() == 30);
}

TEST_CASE("serve needs no more rights than migrate --print-grants --read-only prints") {
    for (const auto which : {support::server::postgresql, support::server::mariadb}) {
        const auto in = tool::server_tables(which);
        if (!in) continue;
        CAPTURE(std::string{in->name()});
        client locks{source_of(*in)};
        const auto held = locks.acquire("a");
        const auto read = shared_mutex{locks, "page"}.acquire(lock_mode::shared);
        const tool::watcher watcher{*in, which};
        const tool::serving at{*in, {"--url", watcher.url()}};
        const auto said = at.locks();
        CHECK(said.at("only_leases") == false);
        CHECK(said.at("locks").size() == 2);
        CHECK(at.get("/api/sessions").at("sessions").size() == 1);
        CHECK(request{.path = "/metrics"}.status(at) == 200);
        const tool::open_transaction keeps{*in};
        json blockers;
        CHECK(tool::eventually([&] {
            blockers = at.get("/api/blockers?name=a");
            return !blockers["transactions"].empty() || blockers["note"] != "";
        }));
        CAPTURE(blockers.dump());
        const bool named = keeps.is_named_in(blockers.dump());
        CHECK(named == (which == support::server::postgresql));
        CHECK((named || blockers.dump().find("this user may not ") != std::string::npos));
    }
}

TEST_CASE(
    "serve names the transaction that keeps a lock, and looks once for all that ask at once") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        client locks{source_of(*in)};
        const auto a = locks.acquire("a");
        const auto b = locks.acquire("b");
        const tool::serving at{*in};
        const tool::serving rarely{*in, {"--every", "1m"}};
        const auto said = [](const tool::serving& of, const std::string& name = "a") {
            return of.get("/api/blockers?name=" + name).at("transactions");
        };
        // Where a look delays others, a server that has looked does not look again for a while.
        const bool delays = in->url().starts_with("mysql:");
        const auto said_now = [&](const std::string& name = "a") {
            return delays ? said(tool::serving{*in}, name) : said(at, name);
        };
        CHECK(at.get("/api/about").at("blockers_on_request") == delays);
        CHECK(request{.path = "/api/blockers?name="}.status(at) == 400);
        // Without performance_schema MySQL names every transaction of the server that has locked
        // rows, those of other tests, too.
        const bool alone = !(in->url().starts_with("mysql:") && support::mysql_alone());
        if (alone) CHECK(said_now().empty());
        tool::open_transaction keeps{*in};
        const auto named_in = [&](const json& all) {
            json one;
            for (const auto& each : all) {
                if (each.at("pid") == keeps.pid()) one = each;
            }
            return one;
        };
        // Once it is old enough to be none of rowlock's. Another look that ends at that moment may
        // stand beside it.
        json found;
        REQUIRE(tool::eventually([&] {
            found = said_now();
            return !named_in(found).is_null() && (!alone || found.size() == 1);
        }));
        CHECK(keeps.is_named_in(named_in(found).at("text").get<std::string>()));
        if (!in->url().starts_with("sqlite:")) {
            CHECK(named_in(found).at("age_ms").is_number());
            if (alone) CHECK(said_now("b").empty());
        }
        const auto first = said(rarely);
        CHECK_FALSE(named_in(first).is_null());
        const auto before = at.get("/api/blockers?name=a");
        const auto looked = std::chrono::steady_clock::now();
        CHECK(before.at("read_ms_ago") >= 0);
        CHECK_FALSE(named_in(before.at("transactions")).is_null());
        keeps.end();
        CHECK(tool::eventually([&] { return named_in(said_now()).is_null(); }));
        CHECK(said(rarely) == first);
        if (!delays) continue;
        const auto after = at.get("/api/blockers?name=a");
        if (std::chrono::steady_clock::now() - looked > 9s)
            continue;  // such a slow machine shows nothing here
        CHECK(after.at("transactions") == before.at("transactions"));
        CHECK(after.at("read_ms_ago") > before.at("read_ms_ago"));
    }
}

TEST_CASE("serve goes on with what it has while the database cannot be read, and says so") {
    const auto in = tool::sqlite_tables();
    client locks{source_of(*in)};
    const auto held = locks.acquire("a");
    const tool::serving at{*in};
    REQUIRE(at.locks().at("locks").size() == 1);
    tool::execute(*in, "alter table rowlock_ticket rename to hidden");
    const auto said = [&] { return at.get("/api/locks"); };
    CHECK(tool::eventually([&] { return said().at("problem") != nullptr; }));
    CHECK(said().at("locks").size() == 1);
    CHECK(request{.path = "/metrics"}.status(at) == 503);
    tool::execute(*in, "alter table hidden rename to rowlock_ticket");
    CHECK(tool::eventually([&] { return said().at("problem") == nullptr; }));
}

TEST_CASE("serve ends at SIGTERM while a page is open") {
    const auto in = tool::sqlite_tables();
    tool::serving at{*in};
    listener stream{at};
    REQUIRE(stream.has([](const json&) { return true; }));
    at.running().send(SIGTERM);
    CHECK(at.running().wait() == 0);
}

TEST_CASE("serve refuses to be open to others without a token") {
    const auto in = tool::sqlite_tables();
    const tool::token_file secret;
    const auto refused = [&](const tool::arguments& options, int code, const std::string& why) {
        tool::arguments command{"serve"};
        command.insert(command.end(), options.begin(), options.end());
        const auto got = in->run(command);
        CAPTURE(got.err);
        CHECK(got.code == code);
        CHECK(got.err.find(why) != std::string::npos);
        CHECK(got.err.find(secret.token()) == std::string::npos);
    };
    refused({"--listen", "0.0.0.0:0"}, 64, "give --token-file");
    refused({"--listen", "[::]:0"}, 64, "give --token-file");
    refused({"--allow-break"}, 64, "--allow-break needs --token-file");
    for (const char* wrong : {"", "x", "127.0.0.1", "127.0.0.1:", "127.0.0.1:99999", "::1:5",
                              "example.org:80", "127.0.0.1:-1"}) {
        refused({"--listen", wrong}, 64, "give ADDRESS:PORT");
    }
    REQUIRE(chmod(secret.path().c_str(), 0644) == 0);
    refused({"--token-file", secret.path()}, 78, "can be read or written by other users");
    REQUIRE(chmod(secret.path().c_str(), 0600) == 0);
    std::ofstream{secret.path()} << "short\n";
    refused({"--token-file", secret.path()}, 78, "16 or more letters, digits");
    refused({"--token-file", "/nowhere/token"}, 78, "cannot be read");
}

TEST_CASE("serve says if its port is taken, also by another of its kind") {
    const auto in = tool::sqlite_tables();
    const tool::serving first{*in};
    const auto got = in->run({"serve", "--listen", first.address()});
    CHECK(got.code == 71);
    CHECK(got.err.find("cannot listen on " + first.address()) != std::string::npos);
}

TEST_CASE("a page of another site that has its name lead to this machine gets no data") {
    const auto in = tool::sqlite_tables();
    const tool::serving at{*in};
    const auto port = ":" + std::to_string(at.port());
    for (const std::string host :
         {"evil.example", "127.0.0.1.evil.example", "localhost.evil.example", ""}) {
        CAPTURE(host);
        CHECK(request{.headers = {{"Host", host + (host.empty() ? "" : port)}}}.status(at) == 403);
    }
    for (const std::string host : {"localhost", "127.0.0.1", "[::1]"}) {
        CAPTURE(host);
        CHECK(request{.headers = {{"Host", host + port}}}.status(at) == 200);  // controls
        CHECK(request{.headers = {{"Host", host}}}.status(at) == 200);
    }
}

TEST_CASE("with a token nothing but the page is answered without it") {
    const auto in = tool::sqlite_tables();
    const tool::token_file secret;
    tool::serving at{*in, {"--token-file", secret.path(), "--listen", "0.0.0.0:0"}};
    for (const std::string path : {"/api/locks", "/api/lock?kind=lease&name=a", "/api/sessions",
                                   "/api/history", "/api/events", "/api/about", "/metrics",
                                   "/nothing", "/api/../api/locks", "//api/locks"}) {
        CAPTURE(path);
        CHECK(request{.path = path}.status(at) == 401);
        for (const std::string& wrong : std::vector<std::string>{
                 "Bearer", "Bearer ", "Bearer " + secret.token() + "x", "Basic " + secret.token(),
                 "Bearer " + secret.token().substr(1), secret.token()}) {
            CHECK(request{.path = path, .headers = {{"Authorization", wrong}}}.status(at) == 401);
        }
    }
    CHECK(request{.path = "/api/locks?token=" + secret.token()}.status(at) == 401);
    CHECK(request{.headers = {{"Cookie", "token=" + secret.token()}}}.status(at) == 401);
    CHECK(request{.headers = secret.header()}.status(at) == 200);  // controls
    CHECK(request{.path = "/metrics", .headers = secret.header()}.status(at) == 200);
    for (const std::string path : {"/", "/index.html", "/main.js", "/style.css"}) {
        CHECK(request{.path = path}.status(at) == 200);
    }
    CHECK(at.running().out().find(secret.token()) == std::string::npos);
    CHECK(at.running().err().find(secret.token()) == std::string::npos);
}

TEST_CASE("every answer forbids scripts and frames of others") {
    const auto in = tool::sqlite_tables();
    const tool::serving at{*in};
    for (const std::string path : {"/", "/api/locks", "/nothing"}) {
        CAPTURE(path);
        const auto got = at.answer(path);
        const auto policy = got.get_header_value("Content-Security-Policy");
        CHECK(policy.find("default-src 'none'") != std::string::npos);
        CHECK(policy.find("frame-ancestors 'none'") != std::string::npos);
        CHECK(policy.find("unsafe") == std::string::npos);
        CHECK(got.get_header_value("X-Content-Type-Options") == "nosniff");
        CHECK(got.get_header_value("Access-Control-Allow-Origin") == "");
    }
}

TEST_CASE("serve breaks a lock for a request with the token, as rowlock break does") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        const tool::token_file secret;
        REQUIRE(in->run({"migrate", "--history", "on"}).code == 0);
        tool::serving at{*in, {"--token-file", secret.path(), "--allow-break"}};
        CHECK(at.get("/api/about", secret.header()).at("breaks") == true);
        client locks{source_of(*in)};
        {
            const auto held = locks.acquire("nightly");
            auto order = break_of("nightly", held, "within");
            order["within_ms"] = 3'600'000;
            order["reason"] = "deploy";
            const auto said = post_break(at, secret, order);
            CHECK(said.at("outcome") == "asked");
            CHECK(tool::eventually([&] { return held.release_request().has_value(); }));
            CHECK(held.release_request()->reason == "deploy");
            CHECK(held.held());
            CHECK(tool::eventually([&] {
                const auto shown = lock_in(at.get("/api/locks", secret.header()), "lease:nightly");
                return shown != nullptr && shown.at("holders")[0].value("reason", "") == "deploy";
            }));
        }
        {
            const auto held = locks.acquire("nightly");
            CHECK(post_break(at, secret, break_of("nightly", held)).at("outcome") == "asked");
            CHECK(tool::eventually([&] { return !held.held(); }));
        }
        {
            const auto held = locks.acquire("nightly");
            auto old = break_of("nightly", held, "now");
            old["token"] = std::to_string(held.token().value() - 1);
            CHECK(post_break(at, secret, old).at("outcome") == "gone");
            CHECK(post_break(at, secret, break_of("nightly", held, "now")).at("outcome") ==
                  "taken");
            CHECK(post_break(at, secret, break_of("nightly", held, "now")).at("outcome") == "gone");
            const auto next = client{source_of(*in)}.try_acquire("nightly");
            CHECK(next);
        }
        CHECK(at.running().err().find("the page of 127.0.0.1, for nightly (token ") !=
              std::string::npos);
        const auto holds = at.get("/api/history?name=nightly", secret.header()).at("holds");
        REQUIRE(holds.size() == 4);
        REQUIRE(holds[0].at("asked").size() == 1);
        const auto asked = holds[0].at("asked")[0];
        CHECK(asked.at("reason") == "deploy");
        CHECK(asked.at("by").get<std::string>().starts_with(
            "rowlock serve (the page of 127.0.0.1), pid "));
        CHECK(holds[1].at("asked").size() == 1);
        CHECK(holds[2].at("ended") == "forced");
        CHECK(holds[2].at("ended_by").get<std::string>().starts_with("rowlock serve (the page"));
    }
}

TEST_CASE("what has a dead holder is not counted as held") {
    const auto in = tool::sqlite_tables();
    REQUIRE(in->run({"acquire", "--for", "1h", "nightly"}).code == 0);
    for (int i = 0; i < 3; ++i) {
        REQUIRE(in->run({"acquire", "--for", "1h", "--limit", "3", "gateway"}).code == 0);
    }
    const auto total = [&](const std::string& name) {
        const auto text = in->run({"metrics"}).out;
        const auto at = text.find("\n" + name + " ");
        REQUIRE(at != std::string::npos);
        return text.substr(at + name.size() + 2, text.find('\n', at + 1) - at - name.size() - 2);
    };
    CHECK(total("rowlock_database_permits_used") == "3");
    const tool::serving at{*in};
    CHECK(lock_in(at.get("/api/locks"), "semaphore:gateway").at("used") == 3);
    tool::execute(*in, "update rowlock_session set expires_at = 1000000");
    CHECK(total("rowlock_database_permits_used") == "0");
    const auto shown = json::parse(in->run({"semaphore", "show", "--json", "gateway"}).out);
    CHECK(shown["used"] == 0);
    CHECK(shown["available"] == 3);
    CHECK(shown["expired"] == 3);
    CHECK(in->run({"semaphore", "show", "gateway"}).out.find("expired    3, of dead holders") !=
          std::string::npos);
    REQUIRE(tool::eventually(
        [&] { return lock_in(at.get("/api/locks"), "semaphore:gateway").at("used") == 0; }));
    const auto said = at.get("/api/locks");
    const auto gateway = lock_in(said, "semaphore:gateway");
    CHECK(gateway.at("held") == 0);
    CHECK(gateway.at("expired") == 3);
    CHECK(gateway.at("expired_permits") == 3);
    const auto nightly = lock_in(said, "lease:nightly");
    CHECK(nightly.at("held") == 0);
    CHECK(nightly.at("expired") == 1);
    // And so it is: what is called available can be taken.
    CHECK(in->run({"acquire", "--for", "1h", "--limit", "3", "gateway"}).code == 0);
}

TEST_CASE(
    "serve breaks nothing without the token, without --allow-break, or for another site's page") {
    const auto in = tool::sqlite_tables();
    const tool::token_file secret;
    client locks{source_of(*in)};
    const auto held = locks.acquire("nightly");
    const auto order = break_of("nightly", held, "now").dump();
    const auto with = [&](httplib::Headers more) {
        more.merge(secret.header());
        return request{.path = "/api/break", .headers = std::move(more), .body = order};
    };
    {
        const tool::serving open{*in};
        CHECK(with({}).status(open) == 403);
        const tool::serving reads{*in, {"--token-file", secret.path()}};
        CHECK(with({}).status(reads) == 403);
    }
    const tool::serving at{*in, {"--token-file", secret.path(), "--allow-break"}};
    CHECK(request{.path = "/api/break", .body = order}.status(at) == 401);
    CHECK(with({{"Sec-Fetch-Site", "cross-site"}}).status(at) == 403);
    CHECK(with({{"Sec-Fetch-Site", "same-site"}}).status(at) == 403);
    CHECK(with({{"Origin", "http://evil.example"}}).status(at) == 403);
    CHECK(with({{"Origin", "null"}}).status(at) == 403);
    for (const std::string type :
         {"text/plain", "application/x-www-form-urlencoded", "multipart/form-data"}) {
        CHECK(request{.path = "/api/break", .headers = secret.header(), .body = order, .type = type}
                  .status(at) != 200);
    }
    CHECK(request{.path = "/api/break?" + order, .headers = secret.header()}.status(at) ==
          404);  // GET
    CHECK(locks.is_locked("nightly"));
    CHECK(with({{"Sec-Fetch-Site", "same-origin"}, {"Origin", "http://" + at.address()}})
              .status(at) == 200);  // a control
    CHECK(!locks.is_locked("nightly"));
}

TEST_CASE("serve explains a request to break that is wrong, and breaks nothing") {
    const auto in = tool::sqlite_tables();
    const tool::token_file secret;
    const tool::serving at{*in, {"--token-file", secret.path(), "--allow-break"}};
    client locks{source_of(*in)};
    const auto held = locks.acquire("nightly");
    const auto right = break_of("nightly", held, "now");
    const auto refused = [&](const std::string& body) {
        CAPTURE(body);
        const auto status =
            request{.path = "/api/break", .headers = secret.header(), .body = body}.status(at);
        CHECK(status == 400);
    };
    const auto but = [&](const char* key, const json& value) {
        auto wrong = right;
        wrong[key] = value;
        refused(wrong.dump());
    };
    refused("x");
    refused("[]");
    refused(std::string(3'000, '['));
    for (const char* key : {"name", "kind", "token", "how"}) {
        auto wrong = right;
        wrong.erase(key);
        refused(wrong.dump());
        but(key, 7);
        but(key, "");
    }
    but("kind", "mutex");
    but("token", "99999999999999999999");
    but("name", std::string(256, 'n'));
    but("how", "within");
    auto within = right;
    within["how"] = "within";
    within["within_ms"] = -1;
    refused(within.dump());
    CHECK(
        request{.path = "/api/break", .headers = secret.header(), .body = std::string(20'000, ' ')}
            .status(at) == 413);
    CHECK(held.held());
    CHECK(locks.is_locked("nightly"));
}

TEST_CASE("a request for a thousand parts of an answer gets the answer once") {
    const auto in = tool::sqlite_tables();
    const tool::serving at{*in};
    std::string ranges = "bytes=0-";
    for (int i = 0; i < 1'000; ++i) ranges += ",0-";
    for (const std::string path : {"/style.css", "/api/locks"}) {
        CAPTURE(path);
        const auto all = at.answer(path);
        const auto parts = at.answer(path, {{"Range", ranges}});
        CHECK(parts.status == 200);
        CHECK(parts.body.size() == all.body.size());
    }
}

TEST_CASE("what another site's page asks for is not even counted") {
    const auto in = tool::sqlite_tables();
    const tool::serving at{*in};
    for (const std::string path : {"/api/events", "/api/locks", "/metrics"}) {
        CAPTURE(path);
        CHECK(request{.path = path, .headers = {{"Sec-Fetch-Site", "cross-site"}}}.status(at) ==
              403);
        CHECK(request{.path = path, .headers = {{"Sec-Fetch-Site", "same-site"}}}.status(at) ==
              403);
    }
    CHECK(request{.headers = {{"Sec-Fetch-Site", "same-origin"}}}.status(at) == 200);  // controls
    CHECK(request{.path = "/", .headers = {{"Sec-Fetch-Site", "cross-site"}}}.status(at) == 200);
}

TEST_CASE("a body that has no length, or is compressed, is refused before it is read") {
    const auto in = tool::sqlite_tables();
    const tool::token_file secret;
    const tool::serving at{*in, {"--token-file", secret.path(), "--allow-break"}};
    for (const std::string header :
         {"Transfer-Encoding: chunked", "Content-Encoding: gzip\r\nContent-Length: 2"}) {
        CAPTURE(header);
        raw_connection to{at};
        REQUIRE(
            to.say("POST /api/break HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
                   "Authorization: Bearer " +
                   secret.token() + "\r\n" + header + "\r\n\r\n"));
        const auto said = to.hear();
        CHECK(said.starts_with("HTTP/1.1 400"));
    }
}

TEST_CASE("a request that is none, or has no end, is cut off") {
    const auto in = tool::sqlite_tables();
    const tool::serving at{*in};
    for (const std::string text : {"GET # HTTP/1.1\r\n\r\n", "\r\n\r\n", "GET /\r\n\r\n"}) {
        CAPTURE(text);
        raw_connection to{at};
        REQUIRE(to.say(text));
        CHECK(to.hear().find("substr") == std::string::npos);
    }
    raw_connection endless{at};
    REQUIRE(endless.say("GET / HTTP/1.1\r\n"));
    std::size_t said = 0;
    while (said < 10'000'000 && endless.say("X-More: " + std::string(1'000, 'x') + "\r\n"))
        said += 1'000;
    CHECK(said < 10'000'000);
    CHECK(request{.path = "/"}.status(at) == 200);
}

TEST_CASE("four hundred connections that send no whole request delay no other") {
    const auto in = tool::sqlite_tables();
    const tool::token_file secret;
    const tool::serving at{*in, {"--token-file", secret.path(), "--allow-break"}};
    static_cast<void>(at.answer("/metrics", secret.header()));
    const std::string body_missing =
        "POST /api/break HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
        "Authorization: Bearer " +
        secret.token() + "\r\nContent-Length: 100\r\n\r\n{";
    for (const std::string& said :
         {std::string{}, std::string{"GET / HTTP/1.1\r\nX-Slow: "}, body_missing}) {
        CAPTURE(said);
        const auto silent = open_connections(at, 400, said);
        check_answered_at_once(at, secret.header());
    }
    check_answered_at_once(at, secret.header());
}

TEST_CASE("four hundred connections that drip their requests delay no other") {
    const auto in = tool::sqlite_tables();
    const tool::serving at{*in};
    static_cast<void>(at.answer("/metrics"));
    const slow_clients drip{open_connections(at, 400, "GET / HTTP/1.1\r\nX-Slow: "),
                            [](raw_connection& each) { each.say("x"); }};
    check_answered_at_once(at);
}

TEST_CASE("clients that take their answers slowly delay no other") {
    const auto in = tool::sqlite_tables();
    client holder{source_of(*in), with_owner("holder")};
    const auto first = holder.acquire("first");
    add_leases_of_first(*in, 1'500);
    const tool::serving at{*in, {"--every", "1h"}};
    static_cast<void>(at.answer("/metrics"));
    CHECK(at.answer("/api/locks").body.size() > 300'000);  // more than a socket takes
    const std::string ask = "GET /api/locks HTTP/1.1\r\nHost: localhost\r\n\r\n";
    connections slow;
    while (slow.size() < 120) {  // few at a time: others would be told that too many ask
        for (auto& each : open_connections(at, 4, ask, {.takes_little = true})) {
            slow.push_back(std::move(each));
        }
        if (slow.size() > 90) continue;  // more than threads
        REQUIRE(tool::eventually([&] { return slow.back()->is_heard(); }));
    }
    const slow_clients sip{std::move(slow), [](raw_connection& each) {
                               if (each.is_heard()) static_cast<void>(each.hear_some(600));
                           }};
    check_answered_at_once(at);
}

TEST_CASE("the silent connections of one address cost no other address its slow request") {
    const auto in = tool::sqlite_tables();
    const tool::serving at{*in};
    raw_connection slow{at, {.from = "127.0.0.2"}};
    REQUIRE(slow.say("GET / HTTP/1.1\r\n"));
    const auto silent = open_connections(at, 400, "");
    CHECK(tool::eventually(  // control: the server ends some
        [&] {
            return std::ranges::any_of(silent, [](const auto& each) { return each->is_heard(); });
        }));
    REQUIRE(slow.say("Host: localhost\r\n\r\n"));
    CHECK(slow.hear().starts_with("HTTP/1.1 200"));
}

TEST_CASE("a connection that says no more is answered if its request is whole, and closed if not") {
    const auto in = tool::sqlite_tables();
    const tool::serving at{*in};
    raw_connection whole{at};
    REQUIRE(whole.say("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    whole.end_saying();
    CHECK(whole.hear().starts_with("HTTP/1.1 200"));
    raw_connection half{at};
    REQUIRE(half.say("GET / HTTP/1.1\r\n"));
    half.end_saying();
    CHECK_FALSE(half.hear().starts_with("HTTP/1.1 200"));
}

TEST_CASE("streams that nobody follows leave their places to a page") {
    const auto in = tool::sqlite_tables();
    const tool::serving at{*in};
    const std::string follow = "GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n";
    const auto is_streamed = [&] {
        raw_connection page{at};
        page.say(follow);
        if (!tool::eventually([&] { return page.is_heard(); })) return false;
        return page.hear_some(12) == "HTTP/1.1 200";
    };
    auto forgotten = open_connections(at, 60, follow);
    REQUIRE(tool::eventually([&] {
        return std::ranges::all_of(forgotten, [](const auto& each) { return each->is_heard(); });
    }));
    CHECK_FALSE(is_streamed());  // they are new
    CHECK(tool::eventually(is_streamed, 20s));
    // Those that have gone leave theirs before the server next has something to say to them.
    forgotten = open_connections(at, 60, follow);
    forgotten.clear();
    CHECK(tool::eventually(is_streamed, 4s));
}

TEST_CASE("serve answers others, and ends at SIGTERM, beside clients that never finish a request") {
    const auto in = tool::sqlite_tables();
    tool::serving at{*in};
    std::vector<std::unique_ptr<raw_connection>> slow;
    for (int i = 0; i < 120; ++i) {  // more than it has threads
        slow.push_back(std::make_unique<raw_connection>(at));
        slow.back()->say("GET / HTTP/1.1\r\nX-Slow: ");
    }
    std::jthread drip{[&](const std::stop_token& stop) {
        while (!stop.stop_requested()) {
            for (const auto& each : slow) each->say("x");
            std::this_thread::sleep_for(200ms);
        }
    }};
    CHECK(request{.path = "/"}.status(at) == 200);  // they are cut off after 10 s
    at.running().send(SIGTERM);
    CHECK(at.running().wait(20s) == 0);
}

TEST_CASE("serve answers others, and ends at SIGTERM, while the database hangs") {
    const auto in = tool::server_tables(support::server::postgresql);
    if (!in) return;
    tool::serving at{*in};
    static_cast<void>(at.locks());
    const auto deadline = std::chrono::steady_clock::now() + 30s;
    const auto blocker = rowlock::open(in->url()).connect(deadline);
    blocker->query("begin", deadline);
    blocker->query("lock table " + in->prefix() + "session in access exclusive mode", deadline);
    std::vector<std::jthread> waiting;
    std::atomic<int> refused{0};
    for (int i = 0; i < 40; ++i) {
        waiting.emplace_back([&, i] {
            auto http = at.http();
            const auto got = http.Get(i % 2 == 0 ? "/api/sessions" : "/metrics");
            if (got && got->status == 503) ++refused;
        });
    }
    CHECK(tool::eventually([&] { return refused > 20; }));  // at once, or after 5 s
    CHECK(request{.path = "/"}.status(at) == 200);
    CHECK(at.get("/api/locks").at("locks").empty());  // what was read before
    at.running().send(SIGTERM);
    CHECK(at.running().wait() == 0);
    blocker->query("rollback", std::chrono::steady_clock::now() + 30s);
}

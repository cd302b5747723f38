// The meaning of ssl-mode, with a MariaDB that has its own certificate, one without TLS, and
// programs that only pretend to be a server.

#include "support/own_server.hpp"
#include "support/sanitized.hpp"
#include "support/scripted_mysql.hpp"
#include "support/server_process.hpp"
#include "support/servers.hpp"
#include "support/tcp_listener.hpp"
#include "support/this_process.hpp"
#include "support/waits.hpp"
#include <rowlock/driver/mysql.hpp>
#include <rowlock/error.hpp>

#include <cppconn/connection.h>
#include <cppconn/driver.h>
#include <cppconn/exception.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace contract {
namespace {

using namespace std::chrono_literals;
using rowlock::errc;
using support::soon;
using clock = std::chrono::steady_clock;

/// A certificate authority, and a key whose certificate it has signed for one address or name.
class certificates {
public:
    /// @param names as in subjectAltName: `IP:127.0.0.1`, `DNS:db.example`
    explicit certificates(const std::string& names) {
        openssl({"req", "-x509", "-newkey", "ec", "-pkeyopt", curve, "-nodes", "-days", "2",
                 "-subj", "/CN=an authority", "-keyout", path("ca.key"), "-out", path("ca.pem")});
        openssl({"req", "-newkey", "ec", "-pkeyopt", curve, "-nodes", "-subj", "/CN=a server",
                 "-addext", "subjectAltName=" + names, "-keyout", path("key.pem"), "-out",
                 path("request")});
        openssl({"x509", "-req", "-days", "2", "-in", path("request"), "-CA", path("ca.pem"),
                 "-CAkey", path("ca.key"), "-CAcreateserial", "-copy_extensions", "copy", "-out",
                 path("certificate.pem")});
    }

    [[nodiscard]] std::string authority() const { return path("ca.pem"); }
    [[nodiscard]] support::own_server_settings settings() const {
        return {.arguments = {"--ssl-cert=" + path("certificate.pem"),
                              "--ssl-key=" + path("key.pem"), "--ssl-ca=" + authority()}};
    }

private:
    /// Such a key is made in no time.
    static constexpr auto curve = "ec_paramgen_curve:prime256v1";

    [[nodiscard]] std::string path(const std::string& name) const {
        return folder_.path() + "/" + name;
    }
    void openssl(std::vector<std::string> arguments) const {
        arguments.insert(arguments.begin(), "openssl");
        if (support::run_as_server(arguments, folder_, "openssl.log") != 0) {
            throw std::runtime_error{"openssl failed: " + folder_.read("openssl.log")};
        }
    }

    support::server_folder folder_;
};

enum class outcome : unsigned char { encrypted, clear, refused_unsupported, refused };

const char* to_string(outcome what) {
    switch (what) {
        case outcome::encrypted:
            return "encrypted";
        case outcome::clear:
            return "in the clear";
        case outcome::refused_unsupported:
            return "refused: the server has no TLS";
        case outcome::refused:
            return "refused";
    }
    return "?";
}

outcome connect(const std::string& url) {
    try {
        const auto db = rowlock::mysql::open(url).connect(soon());
        const auto row = db->query("show session status like 'Ssl_cipher'", soon());
        return row.text(0, 1).empty() ? outcome::clear : outcome::encrypted;
    } catch (const rowlock::error& failure) {
        INFO(failure.what());
        CHECK(
            (failure.kind() == errc::unsupported || failure.kind() == errc::database_unreachable));
        return failure.kind() == errc::unsupported ? outcome::refused_unsupported
                                                   : outcome::refused;
    }
}

using expectations = std::vector<std::pair<std::string, outcome>>;

/// The outcomes that do not depend on the name in the server's certificate. By default there is no
/// TLS to this machine.
expectations unverified(outcome by_default = outcome::clear) {
    return {{"", by_default},
            {"?ssl-mode=PREFERRED", outcome::encrypted},
            {"?ssl-mode=DISABLED", outcome::clear},
            {"?ssl-mode=REQUIRED", outcome::encrypted}};
}

void check(const std::string& url, const expectations& all) {
    for (const auto& each : all) {
        const std::string& parameters = each.first;
        CAPTURE(parameters);
        CHECK(std::string{to_string(connect(url + parameters))} == to_string(each.second));
    }
}

/// A server that offers no TLS.
support::own_server_settings without_tls() {
    return {.arguments = {support::mysql_alone() ? "--tls-version=" : "--skip-ssl"}};
}

/// A server whose certificate names its address, for all cases: it takes seconds to start.
struct server_with_tls {
    const certificates its{"IP:127.0.0.1"};
    const std::unique_ptr<support::own_server> server = [this] {
        auto settings = its.settings();
        settings.arguments.emplace_back("--bind-address=*");
        return support::own_server::start(support::server::mariadb, settings);
    }();
};
const server_with_tls& encrypting() {
    static const server_with_tls one;
    return one;
}
/// One without TLS, likewise. Null if there is none.
const support::own_server* plain() {
    static const auto one = support::own_server::start(support::server::mariadb, without_tls());
    return one.get();
}

std::string with_user(const std::string& url, const std::string& user) {
    return "mysql://" + user + url.substr(url.find('@'));
}

std::string with_host(const std::string& url, const std::string& host) {
    const auto at = url.find('@') + 1;
    return url.substr(0, at) + host + url.substr(url.find(':', at));
}

bool has_ipv6_loopback() {
    const int probe = ::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in6 here{};
    here.sin6_family = AF_INET6;
    here.sin6_addr = in6addr_loopback;
    const bool bound =
        probe >= 0 && ::bind(probe, reinterpret_cast<const sockaddr*>(&here), sizeof here) == 0;
    if (probe >= 0) ::close(probe);
    return bound;
}

constexpr std::array modes{"", "?ssl-mode=PREFERRED", "?ssl-mode=DISABLED", "?ssl-mode=REQUIRED",
                           "?ssl-mode=VERIFY_IDENTITY"};

struct failure {
    errc kind{};
    int number = 0;
    std::string text;
};

failure failure_of(const std::string& url, std::chrono::milliseconds limit = 20s) {
    try {
        (void)rowlock::mysql::open(url).connect(clock::now() + limit);
    } catch (const rowlock::error& e) {
        return {e.kind(), e.native_code(), e.what()};
    }
    FAIL_CHECK("no error was thrown");
    return {};
}

/// @param host 127.0.0.2 stands for another machine
std::string url_of(std::uint16_t port, const std::string& host = "127.0.0.1") {
    return "mysql://app:the%20secret@" + host + ":" + std::to_string(port) + "/shop";
}

/// Servers that authenticate the user by caching_sha2_password and ask for the password itself: at
/// once, and after another plugin.
std::vector<std::vector<std::string>> asks_for_the_password() {
    const std::string to_know_it{"\x01\x04"};
    const std::string another =
        std::string{"\xfe"} + "caching_sha2_password" + '\0' + "a scramble of twenty" + '\0';
    return {{support::mysql_greeting("caching_sha2_password"), support::mysql_packet(2, to_know_it),
             ""},
            {support::mysql_greeting("mysql_native_password"), support::mysql_packet(2, another),
             support::mysql_packet(4, to_know_it), ""}};
}

/// Connects with optional TLS, which the library goes on without.
void connect_by_the_library(std::uint16_t port, const std::string& password) {
    ::sql::ConnectOptionsMap settings;
    settings["hostName"] = "tcp://127.0.0.2:" + std::to_string(port);
    settings["userName"] = std::string{"app"};
    settings["password"] = password;
    settings["sslEnforce"] = true;
    try {
        const std::unique_ptr<::sql::Connection> made{::get_driver_instance()->connect(settings)};
    } catch (const ::sql::SQLException&) {
        // it has closed
    }
}

}  // namespace

TEST_CASE("each ssl-mode means what it says: a server whose certificate names its address") {
    const auto& [its, server] = encrypting();
    const certificates others{"IP:127.0.0.1"};
    if (!server) return;
    check(server->url(), unverified());
    check(server->url(),
          {{"?ssl-mode=VERIFY_CA&ssl-ca=" + its.authority(), outcome::encrypted},
           {"?ssl-mode=VERIFY_IDENTITY&ssl-ca=" + its.authority(), outcome::encrypted},
           {"?ssl-mode=VERIFY_CA&ssl-ca=" + others.authority(), outcome::refused},
           {"?ssl-mode=VERIFY_IDENTITY&ssl-ca=" + others.authority(), outcome::refused},
           {"?ssl-mode=VERIFY_IDENTITY", outcome::refused}});
    CHECK_THROWS_AS(
        (void)rowlock::mysql::open(server->url() + "?ssl-mode=VERIFY_IDENTITY&ssl-verify=false"),
        rowlock::error);
}

TEST_CASE("each ssl-mode means what it says: a server whose certificate names another host") {
    const certificates its{"DNS:elsewhere.example"};
    const auto server = support::own_server::start(support::server::mariadb, its.settings());
    if (!server) return;
    check(server->url(), unverified());
    check(server->url(),
          {// The library checks chain and name together.
           {"?ssl-mode=VERIFY_CA&ssl-ca=" + its.authority(), outcome::refused},
           {"?ssl-mode=VERIFY_IDENTITY&ssl-ca=" + its.authority(), outcome::refused}});
}

TEST_CASE("each ssl-mode means what it says: a server without TLS") {
    const auto* server = plain();
    if (!server) return;
    check(server->url(), {{"", outcome::clear},
                          {"?ssl-mode=PREFERRED", outcome::clear},
                          {"?ssl-mode=DISABLED", outcome::clear},
                          {"?ssl-mode=REQUIRED", outcome::refused_unsupported},
                          {"?ssl-mode=VERIFY_CA", outcome::refused},
                          {"?ssl-mode=VERIFY_IDENTITY", outcome::refused}});
}

TEST_CASE("a unix socket is not encrypted unless asked for") {
    const auto url = support::socket_url_of(support::server::mariadb);
    if (!url) return;
    check(*url, {{"", outcome::clear}});
}

TEST_CASE("TLS is used also for a URL without a password") {
    const auto& server = encrypting().server;
    if (!server) return;
    const auto admin = rowlock::mysql::open(server->url()).connect(soon());
    (void)admin->query("create user open@'%'", soon());
    (void)admin->query("grant all on rowlock.* to open@'%'", soon());
    check(with_user(server->url(), "open"), unverified());
}

TEST_CASE("each address of a host is tried, including IPv6") {
    const auto& server = encrypting().server;
    if (!server) return;
    check(with_host(server->url(), "localhost"), unverified());
    if (has_ipv6_loopback()) check(with_host(server->url(), "[::1]"), unverified());
    check(with_host(server->url(), "127.0.0.2"), unverified(outcome::encrypted));
    const std::string port = server->url().substr(server->url().rfind(':'));
    const std::string both = "127.0.0.2" + port.substr(0, port.find('/')) + ",127.0.0.1";
    check(with_host(server->url(), both), unverified(outcome::encrypted));
    const support::closed_port nobody;
    check(with_host(server->url(), "127.0.0.1:" + std::to_string(nobody.port()) + ",127.0.0.1"),
          unverified());
}

// --- passwords -----------------------------------------------------------------------------------

// shows: passwords
TEST_CASE("a server without TLS that asks for it is not sent the password in clear text") {
    for (const auto& script : asks_for_the_password()) {
        const support::scripted_mysql there{script};
        const std::string url = url_of(there.port(), "127.0.0.2");
        for (const char* how : {"?ssl-mode=REQUIRED", "?ssl-ca=/nowhere/ca.pem",
                                "?ssl-mode=VERIFY_CA", "?ssl-mode=VERIFY_IDENTITY"}) {
            CAPTURE(how);
            CHECK(connect(url + how) != outcome::encrypted);
            CHECK(there.received().empty());  // no hash either
        }
        CHECK(connect(url + "?ssl-mode=REQUIRED") == outcome::refused_unsupported);
        for (const char* how : {"", "?ssl-mode=PREFERRED", "?ssl-mode=DISABLED"}) {
            CAPTURE(how);
            (void)failure_of(url + how);
            CHECK(there.received().ends_with(
                '\x02'));  // the client asked for the server's key instead
            CHECK(there.received().find("the secret") == std::string::npos);
        }
        // Control: the library would send it.
        connect_by_the_library(there.port(), "the secret");
        CHECK(there.received().find("the secret") != std::string::npos);
    }
}

/// A server without TLS that accepts the login and reports, when asked, that there is no cipher.
std::vector<std::string> lets_in_without_tls() {
    const std::string done = std::string{"\0\0\0\x02\0\0\0", 7};
    const std::string end_of_rows = std::string{"\xfe\0\0\x02\0", 5};
    const auto column = [](const std::string& name) {
        const std::string length(1, static_cast<char>(name.size()));
        return "\x03"
               "def" +
               std::string(3, '\0') + length + name + length + name +
               std::string{"\x0c\x21\0\0\x01\0\0\xfd\0\0\0\0\0", 13};
    };
    const std::string cipher =
        support::mysql_packet(1, "\x02") + support::mysql_packet(2, column("Variable_name")) +
        support::mysql_packet(3, column("Value")) + support::mysql_packet(4, end_of_rows) +
        support::mysql_packet(5, std::string{"\x0aSsl_cipher\0", 12}) +
        support::mysql_packet(6, end_of_rows);
    // Connector/C++ first sends two settings and a query. Their answers do not matter.
    return {support::mysql_greeting("mysql_native_password"),
            support::mysql_packet(2, done),
            support::mysql_packet(1, done),
            support::mysql_packet(1, done),
            cipher,
            cipher,
            ""};
}

TEST_CASE("behind a balancer, a login without the TLS that the first probe saw is refused") {
    const std::vector<std::string> looked_at{
        support::mysql_greeting("mysql_native_password", true)};
    {
        const support::scripted_mysql there{looked_at, {lets_in_without_tls()}};
        const auto source =
            rowlock::mysql::open(url_of(there.port(), "127.0.0.2") + "?ssl-mode=REQUIRED");
        for (int i = 1; i <= 2; ++i) {  // no probe is remembered
            CHECK_THROWS_WITH((void)source.connect(soon()),
                              "TLS is required and the server does not offer it");
            CHECK(there.clients() == 2 * i);
        }
        CHECK(there.received().find("Ssl_cipher") != std::string::npos);  // after the login
    }
    // By default, where the server asks for a plugin that requires a probe.
    const std::vector<std::string> asks{support::mysql_greeting("caching_sha2_password", true), ""};
    const support::scripted_mysql there{asks, {looked_at, lets_in_without_tls()}};
    CHECK_THROWS_WITH((void)rowlock::mysql::open(url_of(there.port(), "127.0.0.2")).connect(soon()),
                      "TLS is required and the server does not offer it");
    CHECK(there.clients() == 3);
    CHECK(there.received().find("Ssl_cipher") != std::string::npos);
}

// --- a server's greeting -------------------------------------------------------------------------

TEST_CASE("a server that turns clients away is reported as such with every ssl-mode") {
    struct refusal {
        std::uint16_t number;
        const char* text;
        errc kind;
    };
    for (const refusal& each : {refusal{1040, "Too many connections", errc::out_of_resources},
                                refusal{1040, "#08004Too many connections", errc::out_of_resources},
                                refusal{1129, "Host is blocked", errc::access_denied},
                                refusal{1130, "Host is not allowed", errc::access_denied}}) {
        const support::scripted_mysql there{{support::mysql_refusal(each.number, each.text)}};
        for (const char* how : modes) {
            CAPTURE(how);
            const failure told = failure_of(url_of(there.port()) + how);
            CHECK(told.kind == each.kind);
            CHECK(told.number == each.number);
            CHECK(told.text.find(each.text + (each.text[0] == '#' ? 6 : 0)) != std::string::npos);
        }
    }
}

TEST_CASE("a program that is not a MySQL server is reported as unreachable") {
    const std::string whole = support::mysql_greeting("mysql_native_password", true);
    const std::vector<std::string> others{
        "",
        "\x01",
        std::string{"\0\0\0\0", 4},
        support::mysql_packet(0, "\x0a"),
        support::mysql_packet(0, "\x0a" + std::string(60, 'v')),
        support::mysql_packet(0, "\x09" + whole.substr(5)),
        support::mysql_packet(0, whole.substr(4, 20)),
        support::mysql_packet(0, "\xff"),
        support::mysql_packet(1, whole.substr(4)),
        whole.substr(0, 30),
        "SSH-2.0-OpenSSH_9.2\r\n",
        "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
        std::string(70'000, 'x'),
    };
    for (const std::string& each : others) {
        CAPTURE(each);
        const support::scripted_mysql there{{each}};
        const failure told = failure_of(url_of(there.port()) + "?ssl-mode=REQUIRED");
        CHECK(told.kind == errc::database_unreachable);
        CHECK(there.received().empty());
    }
}

TEST_CASE("connecting to a silent server fails at the deadline") {
    const support::silent_listener silent;
    for (const char* how : modes) {
        CAPTURE(how);
        const auto time_to_fail = [&] {
            const auto begin = clock::now();
            const failure told = failure_of(url_of(silent.port()) + how, 50ms);
            CHECK(told.kind == errc::database_unreachable);
            return clock::now() - begin;
        };
        CHECK(support::at_best(900ms, time_to_fail) < 900ms);
    }
    const support::closed_port nobody;
    for (const char* how : modes) {
        CAPTURE(how);
        CHECK(failure_of(url_of(nobody.port()) + how).kind == errc::database_unreachable);
    }
}

TEST_CASE("a source leaves no more than sixteen connects behind, and works again once they end") {
    REQUIRE(support::eventually([] {
        return support::threads_of_this_process() == 1 + support::threads_of_the_sanitizer;
    }));
    const int before = support::threads_of_this_process();
    const int connections_before = support::connections_of_this_process();
    auto silent = std::make_unique<support::silent_listener>();
    const auto source = rowlock::mysql::open(url_of(silent->port()) + "?ssl-mode=DISABLED");
    const auto connect = [&] {
        try {
            (void)source.connect(clock::now() + 10ms);
        } catch (const rowlock::error& e) {
            CHECK(e.kind() == errc::database_unreachable);
            return std::string{e.what()};
        }
        FAIL_CHECK("no error was thrown");
        return std::string{};
    };
    const std::string crowded = "connections that were abandoned are still being opened";
    // The library waits for a second.
    CHECK(support::eventually([&] { return connect() == crowded; }));
    // Not threads: one whose connect has ended makes room a moment before it ends.
    int most = 0;
    for (int i = 0; i < 40; ++i) {
        (void)connect();
        most = std::max(most, support::connections_of_this_process() - connections_before);
    }
    CHECK(most > 8);
    CHECK(most <= 16);
    silent.reset();
    CHECK(support::eventually([&] { return support::threads_of_this_process() == before; }));
    CHECK(connect() != crowded);
}

// --- what it costs the server --------------------------------------------------------------------

TEST_CASE("a server's last free connection is enough, again and again") {
    const auto* server = plain();  // there the login follows the probe soonest
    if (!server) return;
    const auto admin = rowlock::mysql::open(server->url()).connect(soon());
    (void)admin->query("set global max_connections = 10", soon());
    struct as_before {
        rowlock::sql::connection& on;
        ~as_before() { (void)on.query("set global max_connections = 100", soon()); }
    } const afterwards{*admin};
    (void)admin->query("create user plain@'%'", soon());
    (void)admin->query("grant all on rowlock.* to plain@'%'", soon());
    const auto is_free = [&] {
        return admin->query("show global status like 'Threads_connected'", soon()).text(0, 1) ==
               "9";
    };
    // Without a password in its URL a client probes before each login.
    const auto source =
        rowlock::mysql::open(with_user(server->url(), "plain") + "?ssl-mode=PREFERRED");
    std::vector<std::unique_ptr<rowlock::sql::connection>> others;
    while (others.size() < 8) others.push_back(source.connect(soon()));
    for (int i = 0; i < 200; ++i) {
        REQUIRE(support::eventually(is_free));
        CAPTURE(i);
        CHECK_NOTHROW((void)source.connect(soon()));
    }
    // Control: that one was the last.
    REQUIRE(support::eventually(is_free));
    others.push_back(source.connect(soon()));
    const failure full = failure_of(with_user(server->url(), "plain"));
    CHECK(full.kind == errc::out_of_resources);
    CHECK(full.number == 1040);
}

TEST_CASE("connecting to MariaDB with TLS preferred leaves no handshake unfinished") {
    if (support::mysql_alone()) return;  // MySQL asks for caching_sha2_password
    for (const support::own_server* server :
         std::array<const support::own_server*, 2>{encrypting().server.get(), plain()}) {
        if (!server) return;
        const auto admin = rowlock::mysql::open(server->url()).connect(soon());
        const auto aborted = [&] {
            const auto row = admin->query("show global status like 'Aborted_connects'", soon());
            return std::string{row.text(0, 1)};
        };
        const std::string before = aborted();
        for (int i = 0; i < 10; ++i) {
            (void)rowlock::mysql::open(server->url() + "?ssl-mode=PREFERRED").connect(soon());
        }
        CHECK(aborted() == before);
    }
}

}  // namespace contract

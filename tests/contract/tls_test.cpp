// What ssl-mode means, against a MariaDB with a certificate of its own and one without TLS.

#include "support/own_server.hpp"
#include "support/server_process.hpp"
#include "support/servers.hpp"
#include "support/waits.hpp"
#include <rowlock/driver/mysql.hpp>
#include <rowlock/error.hpp>

#include <doctest/doctest.h>

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace contract {
namespace {

using rowlock::errc;
using support::soon;

/// A certificate authority, and a key whose certificate it has signed for one address or name.
class certificates {
public:
    /// @param names as in subjectAltName: `IP:127.0.0.1`, `DNS:db.example`
    explicit certificates(const std::string& names) {
        openssl({"req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
                 "/CN=an authority", "-keyout", path("ca.key"), "-out", path("ca.pem")});
        openssl({"req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=a server", "-addext",
                 "subjectAltName=" + names, "-keyout", path("key.pem"), "-out", path("request")});
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

/// What does not depend on whose name a server's certificate has.
expectations unverified() {
    return {{"", outcome::clear},
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

}  // namespace

TEST_CASE("each ssl-mode means what it says: a server whose certificate names its address") {
    const certificates its{"IP:127.0.0.1"};
    const certificates others{"IP:127.0.0.1"};
    const auto server = support::own_server::start(support::server::mariadb, its.settings());
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
    const auto url = support::url_of(support::server::mariadb);
    if (!url) return;
    check(*url, {{"", outcome::clear},
                 {"?ssl-mode=DISABLED", outcome::clear},
                 {"?ssl-mode=REQUIRED", outcome::refused_unsupported},
                 {"?ssl-mode=VERIFY_CA", outcome::refused},
                 {"?ssl-mode=VERIFY_IDENTITY", outcome::refused}});
}

}  // namespace contract

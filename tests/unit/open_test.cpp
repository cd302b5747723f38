#include <rowlock/error.hpp>
#include <rowlock/open.hpp>

#include <doctest/doctest.h>

#include <optional>
#include <string>
#include <vector>

using rowlock::errc;
using rowlock::open;
using rowlock::sql::dialect;
using rowlock::sql::table_names;

namespace {

struct refusal {
    errc kind{};
    std::string text;
};

// The error, or nullopt if the URL was accepted.
std::optional<refusal> refusal_of(const std::string& url) {
    try {
        (void)open(url);
    } catch (const rowlock::error& e) {
        return refusal{e.kind(), std::string{e.what()} + e.server_message()};
    }
    return std::nullopt;
}

errc kind_of(const std::string& url) {
    const auto refused = refusal_of(url);
    return refused ? refused->kind : errc{};
}

}  // namespace

TEST_CASE("an unknown scheme is refused with the known ones") {
    for (const std::string url : {"", "shop", "oracle://h/x", "postgresql:x", "mysql:/h", "://",
                                  "http://h?a=b", "sqlite3:x"}) {
        CAPTURE(url);
        const auto refused = refusal_of(url);
        REQUIRE(refused.has_value());
        CHECK(refused->kind == errc::invalid_url);
        CHECK(refused->text.find("postgresql://") != std::string::npos);
    }
}

TEST_CASE("no error contains text that may be a password") {
    const std::vector<std::string> urls{
        "hunter2",
        "hunter2://x",
        "postgresql://ann:hunter2@h:port/x",
        "postgresql://ann:x/hunter2@h/x",
        "postgresql://ann:x@hunter2@h/x",
        "postgresql://ann:/hunter2@h/x",
        "postgresql://ann:1/hunter2@h",
        "postgresql://ann:1/hunter2?connect_timeout=3@h/x",
        "postgresql://ann:hunter2%zz@h/x",
        "postgresql://ann:hunter2%00@h/x",
        "postgresql://h/x?hunter2=1",
        "postgresql://h/x?sslmode=a&hunter2",
        "postgresql://ann:hunter2@h:1:2/x",
        "postgresql://ann:hunter2@[::1/x",
        "postgresql://ann@h/x?rowlock_pooler=hunter2",
        "host=h password=my hunter2",
        "host=h hunter2=x",
        "host=h password='hunter2",
        "host=h rowlock_pooler=hunter2",
        "host=h password=my rowlock_hunter2=x",
        "postgresql://ann:1?rowlock_prefix=hunter2@h/x",
        "postgresql://h/x?rowlock_hunter2=x",
        "host=h dbname=postgresql://ann:hunter2@h/x",
        "mysql://ann:x/hunter2@h/x",
        "mysql://ann:1/hunter2@h",
        "mysql://ann:1@?hunter2=x@h/x",
        "mysql://h/x?hunter2",
        "mysql://h/x?ssl-mode=hunter2",
        "mysql://ann:hunter2@h,,i/x",
        "mysql://ann:1,hunter2/x@h",
        "mysql://ann:hunter2@h",
        "mysql://ann:hunter2@/x",
        "mysql://ann:a?b@hunter2=c/x",
        "mysql://ann:pw@h;hunter2/x",
        "sqlite::memory:?hunter2=1",
    };
    for (const std::string& url : urls) {
        CAPTURE(url);
        const auto refused = refusal_of(url);
        REQUIRE(refused.has_value());
        CHECK(refused->text.find("hunter2") == std::string::npos);
    }
}

TEST_CASE("a URL says where the tables are, which is not part of the description") {
    const auto tables = [](const std::string& url) { return open(url).tables(); };
    const table_names app{.prefix = "app_"};
#ifdef ROWLOCK_HAS_POSTGRESQL
    const table_names in_schema{.schema = "locks", .prefix = "app_"};
    CHECK(tables("postgresql://h/shop") == table_names{});
    CHECK(tables("postgresql://h/shop?rowlock_prefix=app_") == app);
    CHECK(tables("postgres://h/shop?rowlock_schema=locks").schema == "locks");
    CHECK(tables("postgresql://h?connect_timeout=3&rowlock_schema=locks&rowlock_prefix=app_") ==
          in_schema);
    CHECK(tables("postgresql://h/shop?rowlock_schema=locks&sslmode=require&rowlock_prefix=app_"
                 "&rowlock_pooler=transaction") == in_schema);
    CHECK(tables("postgresql://h/shop?rowlock%5Fprefix=%61pp%5f") == app);
    CHECK(tables("host=h rowlock_schema=locks dbname=shop rowlock_prefix = 'app_'") == in_schema);
    CHECK(tables("rowlock_prefix=app_ rowlock_pooler=none host=h") == app);
    CHECK(open("postgresql://h/shop?rowlock_schema=locks&rowlock_prefix=app_").description() ==
          "postgresql://h/shop");
    CHECK(tables("host=h password='rowlock_prefix=hunter2'") == table_names{});
#endif
#ifdef ROWLOCK_HAS_MYSQL
    CHECK(tables("mysql://h/shop") == table_names{});
    CHECK(tables("mysql://h/shop?ssl-mode=disabled&rowlock_prefix=app_") == app);
    CHECK(open("mariadb://h/shop?rowlock_prefix=app_").description() == "mariadb://h/shop");
#endif
#ifdef ROWLOCK_HAS_SQLITE
    CHECK(tables("sqlite:/x.db") == table_names{});
    CHECK(tables("sqlite:/x.db?create=false&rowlock_prefix=app_") == app);
    CHECK(open("sqlite:/x.db?rowlock_prefix=app_").description() == "sqlite:/x.db");
#endif
}

TEST_CASE("a URL whose names of tables cannot be used is refused, in every database") {
    std::vector<std::string> begins;
#ifdef ROWLOCK_HAS_POSTGRESQL
    begins.emplace_back("postgresql://h/shop?");
    begins.emplace_back("postgresql://h/shop?sslmode=require&");
    begins.emplace_back("host=h dbname=shop ");
    for (const std::string url :
         {"postgresql://h/shop?rowlock_schema=locks;x", "postgresql://h/shop?rowlock_schema=pg_x",
          "host=h rowlock_schema='a b'", "host=h rowlock_prefix='app_",
          "host=h rowlock_prefix='app_\\' sslmode='x"}) {
        CAPTURE(url);
        CHECK(kind_of(url) == errc::invalid_url);
    }
    CHECK(refusal_of("postgresql://h/shop?rowlock_prefx=app_")->text.find("rowlock_prefix") !=
          std::string::npos);
#endif
#ifdef ROWLOCK_HAS_MYSQL
    begins.emplace_back("mysql://h/shop?");
    begins.emplace_back("mariadb://h/shop?ssl-mode=disabled&");
    CHECK(refusal_of("mysql://h/shop?rowlock_schema=x")->text.find("only PostgreSQL") !=
          std::string::npos);
#endif
#ifdef ROWLOCK_HAS_SQLITE
    begins.emplace_back("sqlite:/x.db?");
    begins.emplace_back("sqlite:/x.db?create=false&");
    CHECK(kind_of("sqlite:/x.db?rowlock_prefix=sqlite_") == errc::invalid_url);
    CHECK(kind_of("sqlite:/x.db?rowlock_schema=main") == errc::invalid_url);
#endif
    for (const std::string& begin : begins) {
        const std::string between = begin.ends_with(' ') ? " " : "&";
        for (const std::string& name :
             {std::string{"rowlock_prefix="}, std::string{"rowlock_prefix=Hunter2"},
              std::string{"rowlock_prefix=hunter2\"--"},
              "rowlock_prefix=a_" + between + "rowlock_prefix=hunter2",
              std::string{"rowlock_schema="}, std::string{"rowlock_shema=hunter2"},
              std::string{"ROWLOCK_PREFIX=hunter2"}}) {
            const std::string url = begin + name;
            CAPTURE(url);
            const auto refused = refusal_of(url);
            REQUIRE(refused.has_value());
            CHECK(refused->kind == errc::invalid_url);
            CHECK(refused->text.find("unter2") == std::string::npos);
        }
    }
}

#ifdef ROWLOCK_HAS_POSTGRESQL
TEST_CASE("PostgreSQL is opened by URL or conninfo, described without the password") {
    const auto told = [](const std::string& url) {
        const auto source = open(url);
        CHECK(source.speaks() == dialect::postgresql);
        return source.description();
    };
    CHECK(told("postgresql://ann:hunter2@h:5433/shop") == "postgresql://ann@h:5433/shop");
    CHECK(told("postgres://ann@h/shop?password=hunter2") == "postgresql://ann@h/shop");
    CHECK(told("postgresql://a:1,b:2/shop") == "postgresql://a:1,b:2/shop");
    CHECK(told("postgresql://[::1]:5433/shop") == "postgresql://[::1]:5433/shop");
    CHECK(told("postgresql:///shop") == "postgresql:///shop");
    CHECK(told("host=h port=5433 user=ann password=hunter2 dbname=shop") ==
          "postgresql://ann@h:5433/shop");
    CHECK(told("host=a,b dbname=shop") == "postgresql://a,b/shop");
    CHECK(told("host = h password = 'it\\'s hunter2' dbname=shop rowlock_pooler = 'transaction'") ==
          "postgresql://h/shop");
    CHECK(told("dbname=shop rowlock_pooler=none host=h") == "postgresql://h/shop");
    CHECK(told("postgresql://h/shop?rowlock_pooler=transaction") == "postgresql://h/shop");
}

TEST_CASE("PostgreSQL URLs that libpq would reject later are refused at once") {
    for (const std::string url :
         {"postgresql://h:x/shop", "postgresql://h:1,i:y/shop", "postgresql://ann:p@ss@h/shop",
          "host=h port=123456", "postgresql://h/shop?no_such=1", "postgresql://h/shop?a",
          "postgresql://h/%zz", "postgresql://h?rowlock_pooler=session", "host=h port"}) {
        CAPTURE(url);
        CHECK(kind_of(url) == errc::invalid_url);
    }
    CHECK(kind_of(std::string{"postgresql://h/shop\0x", 21}) == errc::invalid_url);
}
#endif

#ifdef ROWLOCK_HAS_MYSQL
TEST_CASE("MySQL is opened by URL, described without the password") {
    const auto told = [](const std::string& url) {
        const auto source = open(url);
        CHECK(source.speaks() == dialect::mysql);
        return source.description();
    };
    CHECK(told("mysql://ann:hunter2@h:3307/shop") == "mysql://ann@h:3307/shop");
    CHECK(told("mariadb://h/shop") == "mariadb://h/shop");
    CHECK(told("mysql://ann@[::1]:3307/shop") == "mysql://ann@[::1]:3307/shop");
    CHECK(told("mysql://ann:hunter2@/shop?socket=/run/my.sock") ==
          "mysql://ann@/shop?socket=/run/my.sock");
    CHECK(told("mysql://ann:pw@h,[::1]:3307/shop") == "mysql://ann@h,[::1]:3307/shop");
    CHECK(told("mysql://ann@localhost/shop?socket=/run/my.sock&ssl-mode=disabled") ==
          "mysql://ann@localhost/shop?socket=/run/my.sock");
}

TEST_CASE("MySQL URLs with a part missing or unknown are refused, naming it") {
    const auto told = [](const std::string& url) {
        const auto refused = refusal_of(url);
        REQUIRE(refused.has_value());
        CHECK(refused->kind == errc::invalid_url);
        return refused->text;
    };
    CHECK(told("mysql:///shop").find("host") != std::string::npos);
    CHECK(told("mysql://h").find("database") != std::string::npos);
    CHECK(told("mysql://h/").find("database") != std::string::npos);
    CHECK(told("mysql://h/shop?sslca=x").find("sslca") != std::string::npos);
    CHECK(told("mysql://h/shop?ssl-verify=maybe").find("ssl-verify") != std::string::npos);
    CHECK(told("mysql://h/shop?ssl-mode=maybe").find("REQUIRED") != std::string::npos);
    CHECK(told("mysql://h/shop?ssl-mode=disabled&ssl-ca=x").find("DISABLED") != std::string::npos);
    CHECK(told("mysql://h,i/shop?socket=/s").find("several hosts") != std::string::npos);
    CHECK(told("mysql://h,,i/shop").find("names a host") != std::string::npos);
}

// shows: passwords
TEST_CASE("a host of a MySQL URL with characters that the library interprets is refused") {
    for (const std::string host :
         {"x;host=127.0.0.2;ssl-verify-server-cert=0", "x%3Bhost=i", "x=y", "%78%3dy", "x%2Ci",
          "i,x%2Cy", "i,x;y", "[::1;host=x]", "[::1%5D", "x%5D", "%5Bx", "x%20y", "x%7By%7D",
          "tcp%3A%2F%2Fx", "x%0Ay", "x%C3%A4"}) {
        for (const std::string rest : {"", "?ssl-mode=DISABLED", "?ssl-mode=VERIFY_IDENTITY"}) {
            const std::string url = "mysql://ann:pw@" + host + "/shop" + rest;
            CAPTURE(url);
            CHECK(kind_of(url) == errc::invalid_url);
        }
    }
    for (const std::string host : {"db_1.shop-eu.example", "[fe80::1%25eth0]", "10.0.0.1"}) {
        CHECK_NOTHROW((void)open("mysql://ann:pw@" + host + "/shop"));
    }
}
#endif

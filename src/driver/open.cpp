#include <rowlock/error.hpp>
#include <rowlock/open.hpp>

#ifdef ROWLOCK_HAS_POSTGRESQL
#include <rowlock/driver/postgresql.hpp>
#endif
#ifdef ROWLOCK_HAS_MYSQL
#include <rowlock/driver/mysql.hpp>
#endif
#ifdef ROWLOCK_HAS_SQLITE
#include <rowlock/driver/sqlite.hpp>
#endif

#include <string_view>

namespace rowlock {
namespace {

// `[[maybe_unused]]`: not called if every driver was built.
[[noreturn, maybe_unused]] void not_built(std::string_view database, std::string_view option) {
    std::string message{"this build has no driver for "};
    message.append(database).append(": build rowlock with -D").append(option).append("=ON");
    throw error{errc::unsupported, message};
}

sql::connection_source open_postgresql(const std::string& url) {
#ifdef ROWLOCK_HAS_POSTGRESQL
    return postgresql::open(url);
#else
    (void)url;
    not_built("PostgreSQL", "ROWLOCK_POSTGRESQL");
#endif
}

sql::connection_source open_mysql(const std::string& url) {
#ifdef ROWLOCK_HAS_MYSQL
    return mysql::open(url);
#else
    (void)url;
    not_built("MySQL", "ROWLOCK_MYSQL");
#endif
}

sql::connection_source open_sqlite(const std::string& url) {
#ifdef ROWLOCK_HAS_SQLITE
    return sqlite::open(url);
#else
    (void)url;
    not_built("SQLite", "ROWLOCK_SQLITE");
#endif
}

// `host=… dbname=…`: a word, then =, and no scheme before it.
bool is_conninfo(std::string_view text) {
    const std::size_t equals = text.find('=');
    return equals != std::string_view::npos && equals > 0 && text.find(':') > equals &&
           text.find('/') > equals;
}

}  // namespace

sql::connection_source open(const std::string& url) {
    const std::string_view text{url};
    if (text.starts_with("postgresql://") || text.starts_with("postgres://")) {
        return open_postgresql(url);
    }
    if (text.starts_with("mysql://") || text.starts_with("mariadb://")) return open_mysql(url);
    if (text.starts_with("sqlite:")) return open_sqlite(url);
    if (is_conninfo(text)) return open_postgresql(url);
    throw error{errc::invalid_url,
                "a database URL starts with postgresql://, mysql://, mariadb:// or sqlite:"};
}

}  // namespace rowlock

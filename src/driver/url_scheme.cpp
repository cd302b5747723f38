#include "driver/url_scheme.hpp"

#include <rowlock/error.hpp>

#include <string>

namespace rowlock::driver {
namespace {

// `host=… dbname=…`: a word, then =, and no scheme before it.
bool is_conninfo(std::string_view text) {
    const std::size_t equals = text.find('=');
    return equals != std::string_view::npos && equals > 0 && text.find(':') > equals &&
           text.find('/') > equals;
}

}  // namespace

sql::dialect dialect_of_url(std::string_view url) {
    if (url.starts_with("postgresql://") || url.starts_with("postgres://")) {
        return sql::dialect::postgresql;
    }
    if (url.starts_with("mysql://") || url.starts_with("mariadb://")) return sql::dialect::mysql;
    if (url.starts_with("sqlite:")) return sql::dialect::sqlite;
    if (is_conninfo(url)) return sql::dialect::postgresql;
    throw error{errc::invalid_url,
                "a database URL starts with postgresql://, mysql://, mariadb:// or sqlite:"};
}

void not_built(sql::dialect driver) {
    struct names {
        std::string_view database, option;
    };
    const auto missing = [driver]() -> names {
        switch (driver) {
            case sql::dialect::postgresql:
                return {"PostgreSQL", "ROWLOCK_POSTGRESQL"};
            case sql::dialect::mysql:
                return {"MySQL", "ROWLOCK_MYSQL"};
            default:
                return {"SQLite", "ROWLOCK_SQLITE"};
        }
    }();
    std::string message{"this build has no driver for "};
    message.append(missing.database).append(": build rowlock with -D").append(missing.option);
    throw error{errc::unsupported, message.append("=ON")};
}

}  // namespace rowlock::driver

#include "driver/url_scheme.hpp"
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

namespace rowlock {

sql::connection_source open(const std::string& url) {
    const auto wanted = driver::dialect_of_url(url);
    switch (wanted) {
#ifdef ROWLOCK_HAS_POSTGRESQL
        case sql::dialect::postgresql:
            return postgresql::open(url);
#endif
#ifdef ROWLOCK_HAS_MYSQL
        case sql::dialect::mysql:
            return mysql::open(url);
#endif
#ifdef ROWLOCK_HAS_SQLITE
        case sql::dialect::sqlite:
            return sqlite::open(url);
#endif
        default:
            driver::not_built(wanted);
    }
}

}  // namespace rowlock

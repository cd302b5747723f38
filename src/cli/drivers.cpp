#include "cli/drivers.hpp"

#ifdef ROWLOCK_DRIVER_MODULES
#include "cli/driver_module.hpp"
#include "cli/module_file.hpp"
#include "driver/url_scheme.hpp"

#ifdef ROWLOCK_HAS_SQLITE
#include <rowlock/driver/sqlite.hpp>
#endif
#else
#include <rowlock/open.hpp>
#endif

namespace rowlock::cli {

#ifdef ROWLOCK_DRIVER_MODULES
namespace {

/// Never unloaded: connections, and errors in flight, have their code in the module.
[[maybe_unused]] sql::connection_source open_by_module(const std::string& file,
                                                       const std::string& url) {
    return module_in<driver_module>(load_module(folder_of_modules(), file), "rowlock_driver", file)
        .open(url);
}

}  // namespace

sql::connection_source open_url(const std::string& url) {
    const auto wanted = driver::dialect_of_url(url);
    switch (wanted) {
#ifdef ROWLOCK_HAS_POSTGRESQL
        case sql::dialect::postgresql:
            return open_by_module("rowlock-postgresql.so", url);
#endif
#ifdef ROWLOCK_HAS_MYSQL
        case sql::dialect::mysql:
            return open_by_module("rowlock-mysql.so", url);
#endif
#ifdef ROWLOCK_HAS_SQLITE
        case sql::dialect::sqlite:
            return sqlite::open(url);
#endif
        default:
            driver::not_built(wanted);
    }
}
#else
sql::connection_source open_url(const std::string& url) {
    return open(url);
}
#endif

}  // namespace rowlock::cli

#include "cli/drivers.hpp"

#ifdef ROWLOCK_DRIVER_MODULES
#include "cli/driver_module.hpp"
#include "cli/exit_code.hpp"
#include "driver/url_scheme.hpp"
#include <rowlock/version.hpp>

#include <dlfcn.h>
#include <fmt/format.h>

#include <string_view>
#ifdef ROWLOCK_HAS_SQLITE
#include <rowlock/driver/sqlite.hpp>
#endif
#else
#include <rowlock/open.hpp>
#endif

namespace rowlock::cli {

#ifdef ROWLOCK_DRIVER_MODULES
namespace {

/// Never unloaded: connections, and errors under way, have their code there.
[[maybe_unused]] sql::connection_source open_by_module(const std::string& file,
                                                       const std::string& url) {
    // Found by the run path of this executable.
    void* const loaded = dlopen(file.c_str(), RTLD_LAZY | RTLD_LOCAL);
    if (loaded == nullptr) {
        const char* const why = dlerror();
        throw failure{misconfigured,
                      fmt::format("the driver for this database could not be loaded ({}): it and "
                                  "its libraries belong to this installation of rowlock",
                                  why == nullptr ? file.c_str() : why)};
    }
    const auto* const module = static_cast<const driver_module*>(dlsym(loaded, "rowlock_driver"));
    if (module == nullptr || std::string_view{module->version} != version_string) {
        throw failure{misconfigured, fmt::format("{} does not belong to rowlock {}: install both "
                                                 "from one build",
                                                 file, version_string)};
    }
    return module->open(url);
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

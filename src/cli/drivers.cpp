#include "cli/drivers.hpp"

#ifdef ROWLOCK_DRIVER_MODULES
#include "cli/driver_module.hpp"
#include "cli/exit_code.hpp"
#include "driver/url_scheme.hpp"
#include <rowlock/version.hpp>

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>
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

/// Where it was installed, or beside this executable, as in a build.
std::filesystem::path find_module(const std::string& file) {
    std::error_code none;
    const auto folder = std::filesystem::read_symlink("/proc/self/exe", none).parent_path();
    for (const auto& place : {folder / ROWLOCK_MODULE_FOLDER / file, folder / file}) {
        if (std::filesystem::exists(place, none)) return place;
    }
    throw failure{misconfigured,
                  fmt::format("{}, the driver for this database, is neither in {} nor beside "
                              "rowlock: it belongs to the installation",
                              file, (folder / ROWLOCK_MODULE_FOLDER).lexically_normal().string())};
}

/// Never unloaded: connections, and errors under way, have their code there.
[[maybe_unused]] sql::connection_source open_by_module(const std::string& file,
                                                       const std::string& url) {
    void* const loaded = dlopen(find_module(file).c_str(), RTLD_LAZY | RTLD_LOCAL);
    if (loaded == nullptr) {
        const char* const why = dlerror();
        throw failure{misconfigured, fmt::format("the driver for this database could not be "
                                                 "loaded, install what it needs: {}",
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

#include "cli/commands.hpp"
#include "cli/json.hpp"
#include <rowlock/open.hpp>
#include <rowlock/version.hpp>

#include <fmt/format.h>

namespace rowlock::cli {
namespace {

bool is_built(const char* url) {
    try {
        static_cast<void>(open(url));
        return true;
    } catch (const error& failure) {
        return failure.kind() != errc::unsupported;
    }
}

}  // namespace

int version(const version_options& options) {
    json drivers = json::array();
    if (is_built("postgresql://localhost/postgres")) drivers.push_back("postgresql");
    if (is_built("mysql://localhost/mysql")) drivers.push_back("mysql");
    if (is_built("sqlite:/tmp/x")) drivers.push_back("sqlite");
    if (options.json) {
        print_json(json{{"version", version_string}, {"drivers", drivers}});
        return success;
    }
    std::string names;
    for (const auto& each : drivers) names += " " + each.get<std::string>();
    print(fmt::format("rowlock {}\ndatabases:{}\n", version_string, names));
    return success;
}

}  // namespace rowlock::cli

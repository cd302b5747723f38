#include "cli/commands.hpp"
#include "cli/drivers.hpp"
#include "cli/json.hpp"
#include <rowlock/version.hpp>

#include <fmt/format.h>

namespace rowlock::cli {
namespace {

bool is_there(const char* url) {
    try {
        static_cast<void>(open_url(url));
        return true;
    } catch (const failure&) {
        return false;  // built, but not loadable here
    } catch (const error& refused) {
        return refused.kind() != errc::unsupported;
    }
}

}  // namespace

int version(const version_options& options) {
    json drivers = json::array();
    if (is_there("postgresql://localhost/postgres")) drivers.push_back("postgresql");
    if (is_there("mysql://localhost/mysql")) drivers.push_back("mysql");
    if (is_there("sqlite:/tmp/x")) drivers.push_back("sqlite");
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

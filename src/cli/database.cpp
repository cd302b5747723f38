#include "cli/database.hpp"

#include "cli/drivers.hpp"
#include "cli/nesting.hpp"
#include "cli/private_file.hpp"
#include "sql/session_settings.hpp"
#include "sql/table_names.hpp"
#include <rowlock/migrations.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

namespace rowlock::cli {
namespace {

const char* environment(const char* name) noexcept {
    return std::getenv(name);
}

/// A variable that is set and empty is a script's mistake, as in ROWLOCK_URL=$UNSET.
std::optional<std::string> environment_url(const char* name) {
    const char* value = environment(name);
    if (value == nullptr) return {};
    if (*value == '\0') {
        throw failure{usage, std::string{name} + " is set and empty: give it a value, or unset it"};
    }
    return value;
}

std::string read_url_file(const std::string& path) {
    const auto lines = read_private_lines({path, "ROWLOCK_URL_FILE names"}, lines_wanted::first);
    if (lines.front().empty()) {
        throw failure{misconfigured,
                      "the first line of the file that ROWLOCK_URL_FILE names must be a URL"};
    }
    return lines.front();
}

std::string folder_in(const char* variable) {
    const char* value = environment(variable);
    return value != nullptr && *value == '/' ? std::string{value} : std::string{};
}

void make_private_folder(const std::string& path) {
    for (std::size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
        const std::string part = path.substr(0, slash);
        if (mkdir(part.c_str(), 0700) != 0 && errno != EEXIST) {
            throw failure{misconfigured, "the folder " + part + " for the embedded database " +
                                             "cannot be made (" + std::strerror(errno) +
                                             "); give a database by --url"};
        }
        if (slash == std::string::npos) return;
    }
}

std::string embedded_url() {
    std::string state = folder_in("XDG_STATE_HOME");
    if (state.empty()) {
        const std::string home = folder_in("HOME");
        if (home.empty()) {
            throw failure{misconfigured,
                          "the local database is below HOME: set that, or give "
                          "a database by --url"};
        }
        state = home + "/.local/state";
    }
    const std::string folder = state + "/rowlock";
    make_private_folder(folder);
    return "sqlite:" + folder + "/rowlock.db";
}

/// Never falls back to a private file: a command under its lock would run beside the real holder.
[[noreturn]] void refuse_to_guess() {
    if (runs_under_a_hold()) {
        throw failure{misconfigured,
                      "no database: this runs under `rowlock run`, which keeps its URL from its "
                      "command; give that one --pass-url, or this one --url"};
    }
    throw failure{misconfigured,
                  "no database: give --url, ROWLOCK_URL or ROWLOCK_URL_FILE (sudo, cron and "
                  "systemd pass none on), or --local for a SQLite file of this user alone"};
}

std::string given_url(const database_options& options) {
    if (options.url) {
        if (!options.url->empty()) return *options.url;
        throw failure{usage, "--url is empty: give a database"};
    }
    if (const auto url = environment_url("ROWLOCK_URL")) return *url;
    if (const auto path = environment_url("ROWLOCK_URL_FILE")) return read_url_file(*path);
    refuse_to_guess();
}

/// Variables that are not read, though their names promise it: the locks would be elsewhere.
void refuse_unread_variables() {
    for (const auto& [variable, parameter] : {std::pair{"ROWLOCK_SCHEMA", "rowlock_schema"},
                                              std::pair{"ROWLOCK_PREFIX", "rowlock_prefix"}}) {
        if (environment(variable) == nullptr) continue;
        throw failure{misconfigured, fmt::format("{} is not read: unset it, and write {}=NAME into "
                                                 "the URL",
                                                 variable, parameter)};
    }
}

/// What a URL or a conninfo gives to a parameter.
std::optional<std::string_view> value_in(std::string_view url, std::string_view parameter) {
    constexpr std::string_view blanks = " \t\n";
    for (auto at = url.find(parameter); at != std::string_view::npos;
         at = url.find(parameter, at + 1)) {
        const bool begins =
            at == 0 || std::string_view{"?& \t\n"}.find(url[at - 1]) != std::string_view::npos;
        auto rest = url.substr(at + parameter.size());
        rest.remove_prefix(std::min(rest.find_first_not_of(blanks), rest.size()));
        if (!begins || !rest.starts_with('=')) continue;
        rest.remove_prefix(std::min(rest.find_first_not_of(blanks, 1), rest.size()));
        return rest.substr(0, rest.find_first_of("& \t\n"));
    }
    return {};
}

/// An option that says the same as a parameter of the URL.
struct naming_option {
    const char* option;
    const char* parameter;
    const std::optional<std::string>& name;
};

std::string with_name(std::string url, const naming_option& given) {
    if (!given.name) return url;
    if (const auto value = value_in(url, given.parameter)) {
        if (*value == *given.name) return url;
        throw failure{usage, fmt::format("{} {} contradicts {} in the URL: leave one of them out",
                                         given.option, *given.name, given.parameter)};
    }
    const auto equals = url.find('=');
    const bool is_conninfo = equals != std::string::npos && url.find_first_of(":/") > equals;
    // In front: the end of the text may be within quotes, or escape what follows.
    if (is_conninfo) return fmt::format("{}={} {}", given.parameter, *given.name, url);
    const char mark = url.find('?') == std::string::npos ? '?' : '&';
    return fmt::format("{}{}{}={}", url, mark, given.parameter, *given.name);
}

/// Validated: they become part of a URL.
sql::table_names names_in(const database_options& options) {
    sql::table_names names;
    names.schema = options.schema.value_or(names.schema);
    names.prefix = options.prefix.value_or(names.prefix);
    sql::validate_names(sql::dialect::postgresql, names);
    return names;
}

/// A read-only command must not leave an empty file behind.
std::string without_creation(std::string url) {
    if (!url.starts_with("sqlite:") || url.find("create=") != std::string::npos) return url;
    return url + (url.find('?') == std::string::npos ? "?create=false" : "&create=false");
}

void require_file(const sql::connection_source& source) {
    if (source.speaks() != sql::dialect::sqlite) return;
    const std::string path = source.description().substr(std::strlen("sqlite:"));
    struct stat found {};
    if (stat(path.c_str(), &found) == 0 || (errno != ENOENT && errno != ENOTDIR)) return;
    throw failure{misconfigured,
                  "there is no file " + path + ": `rowlock migrate` makes it, with the tables"};
}

}  // namespace

database_url find_url(const database_options& options) {
    refuse_unread_variables();
    static_cast<void>(names_in(options));
    std::string url = options.local ? "local" : given_url(options);
    const bool embedded = url == "local";
    if (embedded) url = embedded_url();
    url = with_name(std::move(url), {"--schema", "rowlock_schema", options.schema});
    return {with_name(std::move(url), {"--prefix", "rowlock_prefix", options.prefix}), embedded,
            options.schema, options.prefix};
}

std::vector<sql::connection_source> members_in(const std::string& path) {
    std::vector<sql::connection_source> members;
    for (const auto& url : read_private_lines({path, "--members names"}, lines_wanted::all)) {
        if (url.empty() || url.starts_with('#')) continue;
        members.push_back(open_database({.text = url, .embedded = false}).source);
    }
    return members;
}

sql::table_names names_without_url(const database_options& options) {
    refuse_unread_variables();
    auto names = names_in(options);
    const bool has_url = options.url || environment("ROWLOCK_URL") != nullptr ||
                         environment("ROWLOCK_URL_FILE") != nullptr;
    if (options.local || !has_url) return names;
    const std::string url = given_url(options);
    for (const auto& [option, parameter, name] :
         {naming_option{"--schema", "rowlock_schema", options.schema},
          naming_option{"--prefix", "rowlock_prefix", options.prefix}}) {
        const auto value = value_in(url, parameter);
        if (!value || (name && *value == *name)) continue;
        throw failure{usage,
                      fmt::format("--dialect prints without the URL, which has {}: give the same "
                                  "by {}, or leave --dialect out",
                                  parameter, option)};
    }
    return names;
}

database open_database(const database_url& at, missing_file file) {
    const bool make = at.embedded || file == missing_file::made;
    database found{.url = at.text,
                   .source = open_url(make ? at.text : without_creation(at.text)),
                   .embedded = at.embedded};
    if (!make) require_file(found.source);
    const auto& names = found.source.tables();
    if ((at.schema && *at.schema != names.schema) || (at.prefix && *at.prefix != names.prefix)) {
        throw failure{usage,
                      "--schema or --prefix does not agree with the URL: leave one of them out"};
    }
    return found;
}

void mend_tables(const database& in) {
    if (in.embedded) {
        rowlock::migrate(in.source);
        return;
    }
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds{5};
    require_current_schema(*sql::connect_stated(in.source, until), in.source.tables(), until);
}

std::string description_of(const database& in) {
    std::string text = in.source.description();
    const auto& names = in.source.tables();
    if (!names.schema.empty()) text += ", schema " + names.schema;
    if (names.prefix != sql::table_names{}.prefix) text += ", prefix " + names.prefix;
    return text;
}

client_options tool_options() {
    client_options options;
    options.program = "rowlock";
    // A command makes one call at a time, so it needs no pool.
    options.max_connections = 1;
    return options;
}

}  // namespace rowlock::cli

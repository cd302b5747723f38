#include "cli/database.hpp"

#include "cli/drivers.hpp"

#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>

namespace rowlock::cli {
namespace {

std::string environment(const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? std::string{} : std::string{value};
}

std::string read_url_file(const std::string& path) {
    std::ifstream file{path};
    std::string line;
    if (!file) {
        throw failure{misconfigured, "the file that ROWLOCK_URL_FILE names cannot be read: " +
                                         std::string{std::strerror(errno)}};
    }
    std::getline(file, line);
    line.erase(line.find_last_not_of(" \t\r\n") + 1);
    if (line.empty()) {
        throw failure{misconfigured,
                      "the first line of the file that ROWLOCK_URL_FILE names must be a URL"};
    }
    return line;
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
    std::string state = environment("XDG_STATE_HOME");
    if (!state.starts_with('/')) {
        const std::string home = environment("HOME");
        if (!home.starts_with('/')) {
            throw failure{misconfigured,
                          "no database: give one by --url or ROWLOCK_URL, or set HOME for the "
                          "embedded one"};
        }
        state = home + "/.local/state";
    }
    const std::string folder = state + "/rowlock";
    make_private_folder(folder);
    return "sqlite:" + folder + "/rowlock.db";
}

/// A command that only looks must not leave an empty file behind.
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
    std::string url = options.url;
    if (url.empty()) url = environment("ROWLOCK_URL");
    if (url.empty()) {
        const std::string path = environment("ROWLOCK_URL_FILE");
        if (!path.empty()) url = read_url_file(path);
    }
    const bool embedded = url.empty();
    return {embedded ? embedded_url() : std::move(url), embedded};
}

database open_database(const database_url& at, const database_options& options, missing_file file) {
    const bool make = at.embedded || file == missing_file::made;
    database found{.url = at.text,
                   .source = open_url(make ? at.text : without_creation(at.text)),
                   .embedded = at.embedded,
                   .tables = {.schema = options.schema, .prefix = options.prefix}};
    if (!make) require_file(found.source);
    return found;
}

void mend_tables(const database& in) {
    if (in.embedded) {
        rowlock::migrate(in.source, in.tables);
        return;
    }
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds{5};
    require_current_schema(*in.source.connect(until), in.tables, until);
}

client_options options_for(const database& in) {
    client_options options;
    options.program = "rowlock";
    options.schema = in.tables.schema;
    options.prefix = in.tables.prefix;
    // Nobody waits at a prompt for a pool: one call at a time.
    options.max_connections = 1;
    return options;
}

}  // namespace rowlock::cli

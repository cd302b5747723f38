#pragma once

#include "common/findings.hpp"
#include "common/measure.hpp"
#include "common/program.hpp"
#include "common/tables.hpp"
#include "floors/floors.hpp"

#include <memory>
#include <string>

namespace CLI {
class App;
}

/// The common parts of the two programs about free locks.
namespace bench {

struct throughput_options {
    int connections = rowlock::client_options{}.max_connections;
    int rounds = 0;        ///< 0: depends on --quick
    int milliseconds = 0;  ///< the same
};

void add_throughput_options(CLI::App& app, throughput_options& options);

using measure_on = void(const program_options& common, const std::vector<std::string>& databases,
                        const throughput_options& options, findings& found);
/// The main of a program that measures on each of the databases which its option --database names.
int run_on_databases(int argc, char** argv, const std::string& about, measure_on* measure);

[[nodiscard]] round_options rounds_of(const program_options& common,
                                      const throughput_options& options);

/// The URL of the database that --database names: a server's, or that of a file in the folder.
[[nodiscard]] std::string url_of(const std::string& database, const temporary_folder& folder);

/// The name of the lock that only the worker with this number uses.
[[nodiscard]] std::string name_of(int worker);

/// One rowlock client for all threads.
[[nodiscard]] contestant ours(const tables& where, int threads, const throughput_options& options);
/// The same with release_mode::pipelined.
[[nodiscard]] contestant ours_pipelined(const tables& where, int threads,
                                        const throughput_options& options);
[[nodiscard]] contestant floor_of(floor_table& table, int threads);

/// Adds a note with a contestant's results: processor time of the client and of the server.
void tell(findings& found, const std::string& where, const contestant& who, const pace& seen);

}  // namespace bench

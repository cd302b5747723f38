#include "cli/command_line.hpp"

int main(int argc, char** argv) {
    return rowlock::cli::execute(argc, argv);
}

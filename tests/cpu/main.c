/* main.c - tests of the CPU backend on the tiny checkpoint.
 *
 * usage: cpu WORK [PATTERN]     checkpoints are unpacked under WORK; PATTERN: only tests of such names (*) */
#include "rig.h"

#include <stdio.h>

#include "../golden/fixture.h"

struct calla_weights *rig_tiny;

int main(int argc, char **argv) {
    struct CMUnitTest tests[64];
    struct calla_err err = { 0 };
    char dir[600];
    size_t n = 0;
    const struct calla_weights_options opt = { .check_values = true };
    if (argc != 2 && argc != 3) return fprintf(stderr, "usage: cpu WORK [PATTERN]\n"), 2;
    if (argc == 3) cmocka_set_test_filter(argv[2]);
    snprintf(dir, sizeof dir, "%s/tiny/mlx", argv[1]);
    fixture_unpack("tests/golden/data/tiny/mlx", dir);
    if (calla_weights_open(&rig_tiny, dir, &opt, &err) != 0) fixture_die("%s", err.message);
#define ADD(group) for (int i = 0; i < n_##group; i++) tests[n++] = group[i];
    ADD(same_bits_tests)
    ADD(state_tests)
    ADD(limits_tests)
    ADD(against_reference_tests)
    const int failed = _cmocka_run_group_tests("cpu", tests, n, NULL, NULL);
    calla_weights_close(&rig_tiny);
    return failed;
}

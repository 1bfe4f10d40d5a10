# build/calla-test: the program with the hooks of include/calla_test.h.
HOOKS_SRC := $(wildcard src/engine/*.c) $(APP_SRC) tests/engine/script.c
HOOKS_OBJ := $(HOOKS_SRC:%.c=$O/test-hooks/%.o)
TEST_PROGRAMS += $O/calla-test

$O/calla-test: $(HOOKS_OBJ) $O/libcalla.a
	$(CC) $(SAN) $(LDFLAGS) -o $@ $^ $(LIBS)

$O/test-hooks/%.o: %.c
	@mkdir -p $(dir $@)
	$(CC) $(BASE) -DCALLA_TEST_HOOKS $(CFLAGS) $(PKGFLAGS) -MMD -MP -c -o $@ $<

-include $(HOOKS_OBJ:.o=.d)

# Programs that link against the library.
ENGINE_TESTS := $O/tests/engine/ladder $O/tests/engine/allocations
TEST_PROGRAMS += $(ENGINE_TESTS)
$O/tests/engine/allocations: WRAP := $(foreach f,malloc calloc realloc posix_memalign,-Wl,--wrap=$f)
$O/tests/engine/%: $O/tests/engine/%.o $O/libcalla.a
	$(CC) $(SAN) $(LDFLAGS) $(WRAP) -o $@ $^ $(LIBS)
-include $(ENGINE_TESTS:=.d)

TEST_PROGRAMS += $O/tests/engine/scripted
$O/tests/engine/scripted: $O/test-hooks/tests/engine/scripted.o $(filter-out $O/test-hooks/src/cli/% $O/test-hooks/src/server/%,$(HOOKS_OBJ)) $O/libcalla.a
	$(CC) $(SAN) $(LDFLAGS) -o $@ $^ $(LIBS)

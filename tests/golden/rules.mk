TEST_PROGRAMS += $O/tests/golden/golden
GOLDEN_OBJ := $(patsubst %.c,$O/%.o,$(wildcard tests/golden/*.c))

$O/tests/golden/golden: $(GOLDEN_OBJ) $O/libcalla.a
	$(CC) $(SAN) $(LDFLAGS) -o $@ $^ $(LIBS)

-include $(wildcard $O/tests/golden/*.d)

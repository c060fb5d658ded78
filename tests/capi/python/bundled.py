"""What the tests of the Python package share that is of the bundled model: the model, a card, an engine for each test."""

from support import MODEL, Test, kaiju

model = kaiju.Model(MODEL)
CARD = ("Wren", "Wren is a travelling hedge witch.")
HOT = {"temperature": 1.0, "seed": 7, "max_tokens": 8}
BEGIN = model.chat_symbol("begin")


def said(text):
    return model.chat_format(text)


STORY = model.chat_format([("card", "\n".join(CARD)), ("user", "Tell me a story.")])


class OfEngine(Test):
    def setUp(self):
        super().setUp()
        self.engine = model.engine(threads=1, max_running=1)

    def tearDown(self):
        super().tearDown()
        self.assertEqual(self.engine.pending(), 0)

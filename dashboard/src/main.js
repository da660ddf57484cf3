import { mount } from "svelte";
import "./app.css";
import App from "./App.svelte";
import { show } from "./state/theme.js";

show();
mount(App, { target: document.getElementById("app") });
